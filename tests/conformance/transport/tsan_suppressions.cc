// ThreadSanitizer does not see the atomics of libzmq, which is not built with it, and takes what passes between its
// threads for races. Calls from inside the library and reports that involve it are left out; ours stay checked.
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() { return "called_from_lib:libzmq.so\nrace:libzmq.so\n"; }
