// Loaded into a program under test, with LD_PRELOAD.
//
// TOOLBRIDGE_STRACE is a strace command that is attached before `main`, if the program's first argument equals
// TOOLBRIDGE_STRACED: so the calls of the dynamic loader are not counted. TOOLBRIDGE_SHORT is the name of a program
// whose reads and writes through the C library transfer only half of the bytes.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// Whether a line of /proc/PID/status begins like this; there is a line before it.
static int has(pid_t process, const char *line) {
    char path[64], status[4096];
    snprintf(path, sizeof path, "/proc/%d/status", process);
    int file = open(path, O_RDONLY);
    ssize_t size = file < 0 ? 0 : syscall(SYS_read, file, status, sizeof status - 1);
    close(file);
    status[size < 0 ? 0 : size] = 0;
    return strstr(status, line) != 0;
}

// Attaches strace to a process that stops itself, continues it, and waits until strace has ended.
static void follow(pid_t traced, const char *strace) {
    struct timespec shortly = {0, 1000000};
    char command[8192];
    snprintf(command, sizeof command, "exec %s -p %d", strace, traced);
    while (!has(traced, "\nState:\tT")) nanosleep(&shortly, 0);
    pid_t child = fork();
    if (child == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)0);
        _exit(1);
    }
    // It has no tracer yet, and strace may fail.
    int has_ended = 0;
    while (has(traced, "\nTracerPid:\t0\n") && !has_ended) {
        nanosleep(&shortly, 0);
        has_ended = waitpid(child, 0, WNOHANG) == child;
    }
    kill(traced, SIGCONT);
    if (!has_ended) waitpid(child, 0, 0);
}

// Attaches strace to this process, and returns once it is attached; the file is created when strace has ended. strace is
// not a child of this process and does not inherit its environment, so a search for leftover processes does not find it.
void trace_me(const char *strace, const char *done) {
    pid_t traced = getpid();
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    pid_t child = fork();
    if (child == 0) {
        if (fork() == 0) {
            char command[8192], path[4096], file[4096];
            snprintf(command, sizeof command, "%s", strace);
            snprintf(file, sizeof file, "%s", done);
            snprintf(path, sizeof path, "%s", getenv("PATH"));
            for (char **variable = environ; *variable; variable++) memset(*variable, 0, strlen(*variable));
            clearenv();
            setenv("PATH", path, 1);
            setsid();
            syscall(SYS_close_range, 3, ~0U, 0);
            freopen("/dev/null", "r", stdin);
            freopen("/dev/null", "w", stdout);
            freopen("/dev/null", "w", stderr);
            follow(traced, command);
            close(open(file, O_CREAT | O_WRONLY, 0600));
        }
        _exit(0);
    }
    waitpid(child, 0, 0);
    raise(SIGSTOP);
}

static int is_short;

__attribute__((constructor)) static void begin(int count, char **arguments) {
    const char *strace = getenv("TOOLBRIDGE_STRACE"), *straced = getenv("TOOLBRIDGE_STRACED");
    const char *of = getenv("TOOLBRIDGE_SHORT");
    is_short = of && strcmp(of, program_invocation_short_name) == 0;
    if (strace && straced && count > 1 && strcmp(arguments[1], straced) == 0) {
        // Not for the children of this process.
        unsetenv("LD_PRELOAD");
        trace_me(strace, getenv("TOOLBRIDGE_STRACE_DONE"));
    }
}

// Half of it, except for sizes that are always transferred at once, and except where tokio polls: it rightly takes a short
// transfer for the last one that is possible at the moment, and waits.
static size_t half(int fd, size_t size) {
    struct stat stat;
    if (!is_short || size <= 16 || syscall(SYS_fstat, fd, &stat) != 0) return size;
    if (syscall(SYS_fcntl, fd, F_GETFL) & O_NONBLOCK) return size;
    return S_ISREG(stat.st_mode) || S_ISFIFO(stat.st_mode) || S_ISSOCK(stat.st_mode) ? size / 2 : size;
}

ssize_t write(int fd, const void *bytes, size_t size) { return syscall(SYS_write, fd, bytes, half(fd, size)); }

ssize_t read(int fd, void *bytes, size_t size) { return syscall(SYS_read, fd, bytes, half(fd, size)); }

ssize_t send(int fd, const void *bytes, size_t size, int flags) {
    return syscall(SYS_sendto, fd, bytes, half(fd, size), flags, 0, 0);
}

ssize_t recv(int fd, void *bytes, size_t size, int flags) {
    return syscall(SYS_recvfrom, fd, bytes, half(fd, size), flags, 0, 0);
}

// The first part that is not empty, or half of it.
ssize_t writev(int fd, const struct iovec *parts, int count) {
    if (!is_short) return syscall(SYS_writev, fd, parts, count);
    while (count > 1 && parts->iov_len == 0) parts++, count--;
    return write(fd, parts->iov_base, parts->iov_len);
}
