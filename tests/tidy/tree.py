"""The repository as the tidy checks see it: which files there are, and their text without comments and strings."""
import os
import pathlib
import re

# Folders with C++ of ours. Everything below build/, and every hidden folder, is somebody else's.
SOURCE_FOLDERS = ("weightbus", "services", "cli", "python", "examples", "bench", "tests")
TEXT_FOLDERS = SOURCE_FOLDERS + ("schemas", "scripts", "cmake", "deploy")
CPP_SUFFIXES = (".h", ".cc", ".cu", ".cuh")
TEXT_SUFFIXES = CPP_SUFFIXES + (".py", ".sh", ".cmake", ".capnp", ".txt", ".toml", ".yaml", ".yml", "")

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.MULTILINE)
_NOISE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"([^()\\ ]{0,16})\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9A-Za-z_])\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)


def strip_noise(text):
    """The text with comments and literals blanked, line numbers kept. Include lines keep their names."""

    def blank(match):
        found = match.group(0)
        start = text.rfind("\n", 0, match.start()) + 1
        if found.startswith('"') and re.match(r"[ \t]*#[ \t]*include", text[start:match.start()]):
            return found
        return re.sub(r"[^\n]", " ", found)

    return _NOISE.sub(blank, text)


class Source:
    """One file: its path relative to the root, raw text, and the code alone."""

    def __init__(self, root, path):
        self.path = path
        self.text = (root / path).read_text(encoding="utf-8", errors="replace")
        self.code = strip_noise(self.text) if path.endswith(CPP_SUFFIXES) else self.text

    def line_of(self, offset):
        return self.text.count("\n", 0, offset) + 1

    def includes(self):
        """(line, is_system, name) of each include."""
        return [(self.line_of(m.start()), m.group(1) == "<", m.group(2)) for m in INCLUDE.finditer(self.code)]

    @property
    def folder(self):
        """The layer that the file belongs to: 'plan' for weightbus/plan/..., 'services', 'cli', ..."""
        parts = self.path.split("/")
        return parts[1] if parts[0] == "weightbus" and len(parts) > 2 else parts[0]


class Tree:
    """All sources below a root."""

    def __init__(self, root):
        self.root = pathlib.Path(root)

    def paths(self, folders, suffixes):
        found = []
        for folder in folders:
            for directory, subfolders, files in os.walk(self.root / folder):
                subfolders[:] = [s for s in subfolders if not s.startswith(".") and s not in ("__pycache__", "build")]
                for name in files:
                    if not name.startswith(".") and os.path.splitext(name)[1] in suffixes:
                        found.append(os.path.relpath(os.path.join(directory, name), self.root))
        return sorted(found)

    def cpp(self, folders=SOURCE_FOLDERS):
        return [Source(self.root, path) for path in self.paths(folders, CPP_SUFFIXES)]

    def texts(self):
        return [Source(self.root, path) for path in self.paths(TEXT_FOLDERS, TEXT_SUFFIXES)]
