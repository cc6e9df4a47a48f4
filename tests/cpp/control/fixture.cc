#include "control/fixture.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <sstream>
#include <thread>

#include "control/control_frames.h"
#include "os/socket.h"

namespace ringdist::test {
namespace {

constexpr int kTimeLimit = 15000;  // ms for any answer of a helper

void put_line(int socket, const std::string& link) {
  std::string text = link + "\n";
  [[maybe_unused]] ssize_t n = send(socket, text.data(), text.size(), MSG_NOSIGNAL);
}

std::string get_line(int socket, int timeout) {
  std::string link;
  for (;;) {
    pollfd entry{socket, POLLIN, 0};
    char c = 0;
    if (poll(&entry, 1, timeout) != 1 || recv(socket, &c, 1, 0) != 1) return "no answer";
    if (c == '\n') return link;
    link += c;
  }
}

std::string format_member(const ControlMember& m) {
  std::ostringstream out;
  out << m.rank << ' ' << m.context_id << ' ' << m.host << ' ' << m.unix_name << ' '
      << m.tcp_address << ' ' << m.pid << ' ' << m.host_name;
  return out.str();
}

ControlMember parse_member(std::istream& in) {
  ControlMember m;
  in >> m.rank >> m.context_id >> m.host >> m.unix_name >> m.tcp_address >> m.pid >> m.host_name;
  return m;
}

std::string connect_as_told(Node& node, std::istream& in) {
  uint64_t nonce = 0;
  int rank = 0;
  size_t count = 0;
  in >> nonce >> rank >> count;
  std::vector<ControlMember> members;
  for (size_t i = 0; i < count; ++i) members.push_back(parse_member(in));
  Error e = node.control->connect_group(nonce, rank, members, test::in(milliseconds(8000)));
  return e ? e.message() : "ok";
}

// Forks without running any fork handlers. This is the worst case of a child that keeps all
// descriptors.
pid_t spawn_silent_child() {
  auto pid = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
  if (pid != 0) return pid;
  timespec nap{30, 0};
  syscall(SYS_nanosleep, &nap, nullptr);
  syscall(SYS_exit_group, 0);
  return 0;
}

}  // namespace

std::string request_dump(const std::string& unix_name) {
  ConnectAttempt attempt = connect_unix(unix_name);
  if (attempt.failure) return "";
  auto request = make_frame(FrameType::kDumpRequest);
  send(attempt.fd.get(), request.data(), request.size(), MSG_NOSIGNAL);
  FrameReader reader;
  for (;;) {
    pollfd entry{attempt.fd.get(), POLLIN, 0};
    std::byte buffer[4096];
    if (poll(&entry, 1, 20000) != 1) return "";
    ssize_t n = recv(attempt.fd.get(), buffer, sizeof buffer, 0);
    if (n <= 0) return "";
    reader.append(ConstBytes(buffer, static_cast<size_t>(n)));
    auto frame = reader.next();
    if (!frame.ok()) return "";
    if (frame.value())
      return frame.value()->type == FrameType::kDump ? decode_text(frame.value()->body) : "";
  }
}

bool dump_shows(const Node& node, const std::string& text, bool present) {
  for (TimePoint end = in(kSoon); Clock::now() < end;) {
    bool found = request_dump(node.control->unix_name()).find(text) != std::string::npos;
    if (found == present) return true;
    std::this_thread::sleep_for(milliseconds(20));
  }
  return false;
}

Helper::Helper(double peer_timeout) {
  int sockets[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(sockets[0]);
    serve(sockets[1], peer_timeout);
    _exit(0);
  }
  close(sockets[1]);
  socket_ = sockets[0];
  std::istringstream first(read_line());
  first >> id_ >> unix_name_ >> tcp_address_;
}

Helper::~Helper() {
  if (holder_ > 0) kill(holder_, SIGKILL);
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  close(socket_);
}

// Main loop of the helper process.
void Helper::serve(int socket, double peer_timeout) {
  Node node(peer_timeout);
  put_line(socket, std::to_string(node.id) + " " + node.control->unix_name() + " " +
                       node.control->tcp_address());
  for (;;) {
    std::string link = get_line(socket, -1);
    std::istringstream in(link);
    std::string command, text;
    in >> command;
    if (command == "connect") {
      put_line(socket, connect_as_told(node, in));
    } else if (command == "lost") {
      put_line(socket, std::to_string(node.events.lost_count()));
    } else if (command == "cause") {
      uint64_t id = 0;
      in >> id;
      put_line(socket, node.events.cause(id));
    } else if (command == "flood") {
      in >> text;
      node.control->flood(to_bytes(text));
      put_line(socket, "ok");
    } else if (command == "spawn") {
      put_line(socket, std::to_string(spawn_silent_child()));
    } else {
      if (command == "leave") node.control->leave();
      if (command == "exit") {
        node.control->leave(/*process_ends=*/true);
        node.control->stop();
        put_line(socket, "ok");
        get_line(socket, -1);
        _exit(0);
      }
      return;
    }
  }
}

ControlMember Helper::member(int rank, int host) const {
  return {rank, id_, host, unix_name_, tcp_address_, pid_, "host" + std::to_string(host)};
}

void Helper::begin_connect(uint64_t nonce, int rank, const std::vector<ControlMember>& members) {
  std::string link = "connect " + std::to_string(nonce) + " " + std::to_string(rank) + " " +
                     std::to_string(members.size());
  for (const ControlMember& m : members) link += " " + format_member(m);
  write_line(link);
}

void Helper::leave_and_exit() {
  write_line("leave");
  waitpid(pid_, nullptr, 0);
}

void Helper::begin_exit() { ask("exit"); }

void Helper::end() {
  write_line("end");
  waitpid(pid_, nullptr, 0);
}

void Helper::spawn_holder() { holder_ = std::stoi(ask("spawn")); }

void Helper::signal(int number) const { kill(pid_, number); }

std::string Helper::ask(const std::string& command) {
  write_line(command);
  return read_line();
}

void Helper::write_line(const std::string& link) const { put_line(socket_, link); }

std::string Helper::read_line() { return get_line(socket_, kTimeLimit); }

}  // namespace ringdist::test
