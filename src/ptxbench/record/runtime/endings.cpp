#include "endings.hpp"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <iterator>
#include <vector>

#include "recorder.hpp"

#if !defined(__x86_64__)
#error "the recorder's system-call filter and fake addresses are those of x86-64 Linux"
#endif

namespace ptxbench::record {

namespace {

constexpr std::array kSignals = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS};

constexpr std::array kNamedCalls = {
    SYS_clone,        SYS_clone3, SYS_fork,   SYS_vfork,     SYS_execve, SYS_execveat,     SYS_socket,
    SYS_rt_sigaction, SYS_kill,   SYS_ptrace, SYS_setitimer, SYS_alarm,  SYS_timer_create,
};

// A non-canonical address faults as a general protection error, without telling its value; but some register holds it.
bool touches_device_address(const siginfo_t& info, const ucontext_t& context) {
    if ((info.si_signo != SIGSEGV && info.si_signo != SIGBUS) || info.si_code != SI_KERNEL) return false;
    const auto& registers = context.uc_mcontext.gregs;
    return std::any_of(std::begin(registers), std::end(registers),
                       [](greg_t value) { return is_device_address(static_cast<std::uint64_t>(value)); });
}

void on_signal(int number, siginfo_t* info, void* context) {
    char line[160];
    const int length = std::snprintf(
        line, sizeof line, "{\"event\":\"signal\",\"number\":%d,\"system_call\":%d,\"device_address\":%s}\n", number,
        number == SIGSYS ? info->si_syscall : -1,
        touches_device_address(*info, *static_cast<const ucontext_t*>(context)) ? "true" : "false");
    const ssize_t written = write(recorder().channel, line, static_cast<std::size_t>(length));
    _exit(written == length ? 0 : 3);
}

bool install_filter() {
    std::vector<sock_filter> program = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
    };
    for (const long call : kNamedCalls) {
        program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call), 0, 1));
        program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP));
    }
    program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

}  // namespace

bool name_endings() {
    // A stack of its own, so that a stack overflow is reported too.
    static std::array<char, 64 * 1024> stack;
    stack_t alternate{};
    alternate.ss_sp = stack.data();
    alternate.ss_size = stack.size();
    if (sigaltstack(&alternate, nullptr) != 0) return false;
    struct sigaction action {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (const int number : kSignals) {
        if (sigaction(number, &action, nullptr) != 0) return false;
    }
    return install_filter();
}

}  // namespace ptxbench::record
