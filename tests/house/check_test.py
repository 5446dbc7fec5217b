"""tools/check on tiny trees: each rule passes on a tree in order and names the breach otherwise."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

CHECK = pathlib.Path(__file__).resolve().parents[2] / "tools" / "check"
IN_ORDER = {
    "tools/layers.txt": "# rooms\nbase: tri/result\nmemory: base tri/result\napps: tri/*\n",
    "ARCHITECTURE.md": "# House\n### base: floor\n### memory\n### apps\n",
    "src/base/clock.h": "#pragma once\n#include <vector>\n",
    "src/memory/arena.h": '#pragma once\n#include "base/clock.h"\n#include "tri/result.h"\n',
    "src/memory/arena.cpp": '#include "memory/arena.h"\n\n#include "hwy/highway.h"\n',
    "apps/cli/main.cpp": "int main() { return 0; }\n",
}


def write_tree(root, changes):
    """The tree in order with `changes` on top."""
    for name, text in {**IN_ORDER, **changes}.items():
        path = pathlib.Path(root, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def check(root):
    done = subprocess.run([sys.executable, CHECK, "--root", root], capture_output=True, text=True)
    return done.returncode, done.stderr


class CheckTest(unittest.TestCase):
    def run_on(self, changes):
        with tempfile.TemporaryDirectory() as root:
            write_tree(root, changes)
            return check(root)

    def assert_breach(self, changes, *fragments):
        code, said = self.run_on(changes)
        self.assertEqual(code, 1, said)
        self.assertIn(" 1 breaches", said)
        for fragment in fragments:
            self.assertIn(fragment, said)

    def test_tree_in_order_passes(self):
        code, said = self.run_on({})
        self.assertEqual(code, 0, said)

    def test_upward_include_names_line_and_rule(self):
        self.assert_breach(
            {"src/base/clock.h": '#pragma once\n#include <vector>\n\n#include "memory/arena.h"\n'},
            "src/base/clock.h:4: #include memory/arena.h", "base may include only tri/result")

    def test_angle_brackets_do_not_hide_a_room(self):
        self.assert_breach({"src/base/clock.h": "#pragma once\n#include <memory/arena.h>\n"},
                           "src/base/clock.h:2: #include memory/arena.h")

    def test_apps_see_public_headers_only(self):
        self.assert_breach(
            {"apps/cli/main.cpp": '#include "memory/arena.h"\n#include "tri/session.h"\n'},
            "apps/cli/main.cpp:1: #include memory/arena.h", "apps may include only tri/*")

    def test_a_room_sees_only_its_public_doors(self):
        self.assert_breach({"src/base/clock.h": '#pragma once\n#include "tri/session.h"\n'},
                           "src/base/clock.h:2: #include tri/session.h")

    def test_include_without_a_room(self):
        self.assert_breach({"src/memory/arena.cpp": '#include "arena.h"\n'},
                           "src/memory/arena.cpp:1:", "does not say its room")

    def test_folder_without_a_layer(self):
        self.assert_breach({"src/attic/box.h": "#pragma once\n"}, "src/attic/box.h: lies in no room")

    def test_layers_cannot_name_a_higher_room(self):
        self.assert_breach({"tools/layers.txt": "base: memory\nmemory: base tri/*\napps: tri/*\n"},
                           "tools/layers.txt:1: base may include memory")

    def test_room_without_a_heading(self):
        self.assert_breach({"ARCHITECTURE.md": "### base\n### apps\n"}, "no heading '### memory'")

    def test_heading_without_a_room(self):
        self.assert_breach({"ARCHITECTURE.md": "### base\n### memory\n### apps\n### attic\n"},
                           "ARCHITECTURE.md:4: 'attic' is no room")

    def test_names_are_unique(self):
        self.assert_breach({"src/memory/clock.h": "#pragma once\n"},
                           "src/memory/clock.h: same name as src/base/clock.h")

    def test_kernels_are_named_as_such(self):
        code = "HWY_PUSH_ATTRIBUTES(avx2)\nHWY_POP_ATTRIBUTES\n"
        self.assert_breach({"src/memory/copy.cpp": code}, "src/memory/copy.cpp", "_simd.cpp")
        self.assertEqual(self.run_on({"src/memory/copy_simd.cpp": code})[0], 0)

    def test_ascii(self):
        self.assert_breach({"README.md": "one\ntwo \u2014 three\n"}, "README.md:2: not ASCII")

    def test_no_open_ends(self):
        self.assert_breach({"src/base/clock.h": "#pragma once\n// TO" "DO: later\n"},
                           "src/base/clock.h:2: an open end")

    def test_formatting(self):
        self.assert_breach({"apps/cli/main.cpp": "int  main() { return 0; }\n"},
                           "apps/cli/main.cpp:1: not formatted")

    def test_commit_subject(self):
        with tempfile.TemporaryDirectory() as root:
            write_tree(root, {})
            git = ["git", "-C", root, "-c", "user.name=n", "-c", "user.email=e@example.org"]
            subprocess.run([*git, "init", "-q"], check=True)
            for subject, expected in [("memory: give pages back", 0), ("gave pages back", 1)]:
                subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", subject], check=True)
                code, said = check(root)
                self.assertEqual(code, expected, said)


if __name__ == "__main__":
    unittest.main()
