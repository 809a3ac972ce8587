# x86-64 only: digests and copies are written for its vector units (chosen at run time where they differ).
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  message(FATAL_ERROR "Weightbus is built for x86-64, not for ${CMAKE_SYSTEM_PROCESSOR}")
endif()

# Build options and the flags that every target of ours gets.
option(WEIGHTBUS_TESTS "Build the tests" ON)
option(WEIGHTBUS_BENCH "Build the benchmarks" ON)
option(WEIGHTBUS_FUZZ "Build the libFuzzer targets (needs clang)" OFF)
option(WEIGHTBUS_CUDA "Build the GPU parts where the CUDA Toolkit is found" ON)
option(WEIGHTBUS_TIDY "Register the tidy checks as tests and compile every header alone" OFF)
set(WEIGHTBUS_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize= takes them: address,undefined or thread")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER "${CCACHE_PROGRAM}")
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CCACHE_PROGRAM}")
endif()

# Interface target: warnings are errors in our code, and sanitizers reach every object. g++ 12 reports these two wrongly
# where it inlines std::variant and std::vector, so they are off.
add_library(weightbus_flags INTERFACE)
target_compile_options(weightbus_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion
  -Wno-sign-conversion -Wno-missing-field-initializers -Wnon-virtual-dtor -Woverloaded-virtual -Werror)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # Clang serves the fuzzers only, and does not know every tuning attribute of g++.
  target_compile_options(weightbus_flags INTERFACE -Wno-ignored-attributes)
else()
  target_compile_options(weightbus_flags INTERFACE -Wno-maybe-uninitialized -Wno-free-nonheap-object)
endif()
if(WEIGHTBUS_SANITIZE)
  target_compile_options(weightbus_flags INTERFACE -fsanitize=${WEIGHTBUS_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  target_link_options(weightbus_flags INTERFACE -fsanitize=${WEIGHTBUS_SANITIZE})
endif()
