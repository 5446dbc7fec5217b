"""triaccel as a user sees it: exit codes, one sentence for each mistake, JSON alone on stdout.

Usage: cli_test.py PROGRAM
"""

import json
import os
import resource
import unittest

from program import not_sanitized, triaccel

class WrongUse(unittest.TestCase):
    def assert_sentence(self, arguments, *fragments):
        done = triaccel(*arguments)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertRegex(done.stderr, r"\Atriaccel: [^\n]+\n\Z")
        for fragment in fragments:
            self.assertIn(fragment, done.stderr)

    def test_no_command(self):
        self.assert_sentence([], "no command given", "info")

    def test_unknown_command(self):
        self.assert_sentence(["fly"], "unknown command 'fly'", "info")

    def test_unknown_option_of_the_program(self):
        self.assert_sentence(["--fly"], "'--fly'")

    def test_unknown_option_of_a_command(self):
        self.assert_sentence(["info", "--fly"], "--fly", "triaccel info --help")

    def test_surplus_argument(self):
        self.assert_sentence(["info", "everything"], "everything")

    def test_bad_number(self):
        for bad in ["0", "-1", "two", "", "99999999999999999999"]:
            self.assert_sentence(["info", "--threads", bad], "--threads")


class Help(unittest.TestCase):
    def test_help_lists_the_commands(self):
        done = triaccel("--help")
        self.assertEqual(done.returncode, 0)
        self.assertIn("info", done.stdout)
        self.assertEqual(done.stderr, "")

    def test_help_of_a_command_lists_the_shared_options(self):
        done = triaccel("info", "--help")
        self.assertEqual(done.returncode, 0)
        for option in ["--json", "--quiet", "--threads"]:
            self.assertIn(option, done.stdout)

    def test_version(self):
        done = triaccel("--version")
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stdout, r"\Atriaccel \d+\.\d+\.\d+\n\Z")


class Info(unittest.TestCase):
    def test_text(self):
        done = triaccel("info")
        self.assertEqual(done.returncode, 0, done.stderr)
        for word in ["machine", "simd", "limits", "binds"]:
            self.assertIn(word, done.stdout)

    def test_json_is_the_whole_of_standard_output(self):
        info = json.loads(triaccel("info", "--json").stdout)
        self.assertGreaterEqual(info["machine"]["cores"], 1)
        self.assertIn(info["simd"]["target"], info["simd"]["targets"])
        binding = [limit["bytes"] for limit in info["limits"] if limit["binds"]]
        known = [limit["bytes"] for limit in info["limits"] if limit["bytes"] is not None]
        self.assertEqual(binding, [min(known)])

    @not_sanitized("sanitizers reserve terabytes of addresses")
    def test_address_space_limit_binds(self):
        def limited():
            resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))

        info = json.loads(triaccel("info", "--json", preexec_fn=limited).stdout)
        limit = next(limit for limit in info["limits"] if limit["name"] == "RLIMIT_AS")
        self.assertEqual(limit["bytes"], 1 << 30)

    def test_forced_simd_target(self):
        lowest = json.loads(triaccel("info", "--json").stdout)["simd"]["targets"][-1]
        environment = {**os.environ, "TRIACCEL_SIMD": lowest}
        info = json.loads(triaccel("info", "--json", env=environment).stdout)
        self.assertEqual(info["simd"]["target"], lowest)
        done = triaccel("info", env={**os.environ, "TRIACCEL_SIMD": "MMX"})
        self.assertEqual(done.returncode, 2)
        self.assertIn('"MMX"', done.stderr)

    def test_threads_given(self):
        info = json.loads(triaccel("info", "--json", "--threads", "3").stdout)
        self.assertEqual(info["machine"]["threads"], 3)

    def test_full_disk_is_an_error(self):
        with open("/dev/full", "w", encoding="ascii") as full:
            done = triaccel("info", stdout=full)
        self.assertEqual(done.returncode, 1)
        self.assertIn("standard output", done.stderr)


if __name__ == "__main__":
    unittest.main()
