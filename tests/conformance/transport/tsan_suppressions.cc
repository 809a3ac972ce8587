// ThreadSanitizer does not see the atomics of libzmq and libsodium, which are not built with it, and takes what passes
// between its threads for races. Calls from inside the libraries and reports that involve them are left out; ours stay
// checked.
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() {
  return "called_from_lib:libzmq.so\nrace:libzmq.so\ncalled_from_lib:libsodium.so\nrace:libsodium.so\n";
}
