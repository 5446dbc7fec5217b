#include "experiment/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>

namespace tri::experiment {
namespace {

// Lock-free, as a signal handler needs.
std::atomic<pid_t> child_process = 0;
std::atomic<int> stop_signal = 0;

extern "C" void hand_on(int signal) {
  stop_signal = signal;
  if (const pid_t child = child_process; child > 0) ::kill(child, signal);
}

// Hands SIGINT and SIGTERM on to the child while it lives.
class SignalGuard {
 public:
  SignalGuard() {
    struct sigaction action = {};
    action.sa_handler = hand_on;
    ::sigemptyset(&action.sa_mask);
    ::sigaction(SIGINT, &action, &interrupt_);
    ::sigaction(SIGTERM, &action, &terminate_);
  }
  ~SignalGuard() {
    ::sigaction(SIGINT, &interrupt_, nullptr);
    ::sigaction(SIGTERM, &terminate_, nullptr);
  }
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;

 private:
  struct sigaction interrupt_ = {}, terminate_ = {};
};

Unexpected refused(std::string_view what) {
  return unexpected(ErrorCode::kFailed,
                    fmt::format("cannot {} a run: {}; see whether the system has room for another "
                                "process",
                                what, std::strerror(errno)));
}

// A run's options are those of its row, which its result records; options from the environment
// would act unseen. What says where to compute is not one of them.
std::vector<char*> environment_of_run() {
  std::vector<char*> kept;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const bool option = text.starts_with("TRIACCEL_") && !text.starts_with("TRIACCEL_SIMD=") &&
                        !text.starts_with("TRIACCEL_THREADS=");
    if (!option) kept.push_back(*variable);
  }
  kept.push_back(nullptr);
  return kept;
}

// Never returns. A group of its own: the terminal's ^C reaches it once, through hand_on().
[[noreturn]] void become(const std::vector<std::string>& arguments, int output) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  ::dup2(output, STDOUT_FILENO);
  std::vector<char*> words = {const_cast<char*>("triaccel")};
  for (const std::string& argument : arguments)
    words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  ::execve("/proc/self/exe", words.data(), environment_of_run().data());
  ::_exit(127);
}

std::string read_all(int file) {
  std::string text;
  char piece[4096];
  for (;;) {
    const ssize_t count = ::read(file, piece, sizeof piece);
    if (count > 0) text.append(piece, static_cast<size_t>(count));
    if (count == 0 || (count < 0 && errno != EINTR)) return text;
  }
}

// As a shell wants it.
std::string quoted(const std::string& argument) {
  std::string text = "'";
  for (const char c : argument) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

}  // namespace

Result<ChildEnd> run_child(const std::vector<std::string>& arguments) {
  int pipe_ends[2];
  if (::pipe2(pipe_ends, O_CLOEXEC) != 0) return refused("read from");
  stop_signal = 0;
  const SignalGuard guard;
  const pid_t child = ::fork();
  if (child == 0) become(arguments, pipe_ends[1]);
  ::close(pipe_ends[1]);
  if (child < 0) {
    ::close(pipe_ends[0]);
    return refused("start");
  }
  child_process = child;
  if (const int early = stop_signal; early != 0) ::kill(child, early);
  ChildEnd end;
  end.output = read_all(pipe_ends[0]);
  ::close(pipe_ends[0]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  child_process = 0;
  end.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  end.stop_signal = stop_signal;
  return end;
}

std::string command_line(const std::vector<std::string>& arguments) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_+=.,:/@%";
  std::string line = "triaccel";
  for (const std::string& argument : arguments) {
    const bool plain = !argument.empty() && argument.find_first_not_of(kPlain) == std::string::npos;
    line += plain ? " " + argument : " " + quoted(argument);
  }
  return line;
}

}  // namespace tri::experiment
