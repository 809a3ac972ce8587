// Writes docs/METRICS.md from the catalogue, or checks that it is up to date.
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "weightbus/observe/catalogue.h"

int main(int argc, char** argv) {
  const std::string_view mode = argc == 3 ? argv[1] : "";
  if (mode != "--write" && mode != "--check") {
    std::fputs("usage: weightbus-metrics-doc --write|--check FILE\n", stderr);
    return 2;
  }
  const auto text = weightbus::observe::catalogue_markdown();
  if (mode == "--write") {
    std::ofstream file(argv[2]);
    file << text << std::flush;
    if (file) return 0;
    std::fprintf(stderr, "cannot write %s\n", argv[2]);
    return 1;
  }
  std::ifstream file(argv[2]);
  if (file && std::string(std::istreambuf_iterator<char>(file), {}) == text) return 0;
  std::fprintf(stderr, "%s is not what the catalogue gives; run weightbus-metrics-doc --write %s\n", argv[2], argv[2]);
  return 1;
}
