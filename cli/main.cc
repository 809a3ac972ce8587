// weightbus: the command line. main() composes; the list of commands is in app.cc.
#include <csignal>

#include "cli/app.h"

int main(int argc, char** argv) {
  // `weightbus versions | head` must end quietly, and a socket that closes must not end it at all.
  std::signal(SIGPIPE, SIG_IGN);
  weightbus::cli::Session session(weightbus::cli::standard_console());
  return weightbus::cli::run(session, argc, argv);
}
