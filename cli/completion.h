// Completion scripts for shells.
#pragma once

#include <optional>
#include <string>

namespace CLI {
class App;
}

namespace weightbus::cli {

// For "bash", "zsh" or "fish"; nullopt for others.
std::optional<std::string> completion_script(const CLI::App& app, const std::string& shell);

}  // namespace weightbus::cli
