// What any bytes may be given to: the decoders and the reassembler.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weightbus::wire::testing {

// The first byte chooses: 0 a message, 1 a journal record, 2 frames for one reassembler. Ends the process when a
// promise is broken: what decodes must encode to something that decodes to the same; no message comes out of a
// reassembler larger than its limit.
void try_input(std::string_view input);

// Inputs in this format.
std::string message_input(std::string_view frame);
std::string record_input(std::string_view frame);
std::string frames_input(const std::vector<std::string>& frames);

}  // namespace weightbus::wire::testing
