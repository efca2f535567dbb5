/* The floor of the benchmark, and the parents that do nothing.
 *
 *   floor relay SOCKET    passes bytes between stdin/stdout and SOCKET without looking at them
 *   floor busy SOCKET     the same, but busy for a moment each time: the cost of a relay that does a little work
 *   floor lines SOCKET    a parent for the relay: answers each MCP line with an MCP line
 *   floor frames SOCKET   a parent for the bridge: answers each frame with a frame
 *
 * Nothing between a client and a parent in another process can be faster than the relay,
 * so the bridge is compared with it. The two parents do the same work, so that the contenders
 * differ only in what is between client and parent: each reads one whole request, finds the text at a
 * known offset, and writes it back with one system call. They end when stdin ends.
 *
 * Linux only.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* A little more than a Unix socket accepts at once. */
#define RELAY_BYTES (256 * 1024)
#define FIRST_BUFFER_BYTES (64 * 1024)
#define MAX_EVENTS 64
#define MAX_CONNECTIONS 1024
#define PREFIX_BYTES 4
#define BUSY_NANOSECONDS 3000

/* The requests and answers that the benchmark uses. Any other request is an error. */
#define ID_BYTES 8
#define LINE_HEAD "{\"jsonrpc\":\"2.0\",\"id\":"
#define LINE_CALL ",\"method\":\"tools/call\",\"params\":{\"name\":\""
#define FRAME_CALL "{\"method\":\"call_tool\",\"params\":{\"name\":\""
#define NAME_BYTES 4
#define ARGUMENTS_KEY "\",\"arguments\":"
#define CALL_TAIL "}}"
/* `echo` returns its text, its only argument. */
#define TEXT_ARGUMENTS "{\"text\":\""
#define TEXT_ARGUMENTS_TAIL "\"}"
/* `take` returns the short text that follows its items. */
#define SHORT_TEXT_BYTES 100
/* `both` returns its arguments as they are. */
#define LINE_RESULT ",\"result\":"
#define FRAME_RESULT "{\"result\":"
#define TEXT_HEAD "{\"content\":[{\"type\":\"text\",\"text\":\""
#define TEXT_TAIL "\"}],\"isError\":false}}"
#define BOTH_HEAD "{\"content\":[{\"type\":\"text\",\"text\":\"items\"}],\"structuredContent\":"
#define BOTH_TAIL ",\"isError\":false}}"

#define LENGTH(literal) (sizeof(literal) - 1)

static void die(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fputs("floor: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

static struct sockaddr_un address(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path)
        die("the path is too long for a socket: %s", path);
    strcpy(address.sun_path, path);
    return address;
}

static int stream_socket(void) {
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        die("socket: %s", strerror(errno));
    return fd;
}

/* ---- the relay ---- */

struct flow {
    int from, to;
    size_t start, end;
    char bytes[RELAY_BYTES];
};

/* Static: untouched memory costs nothing. */
static struct flow up, down;
static int is_busy;

static void be_busy(void) {
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - start.tv_sec) * 1000000000L + now.tv_nsec - start.tv_nsec < BUSY_NANOSECONDS);
}

/* Writes as much as possible of what was read. */
static void push(struct flow *flow) {
    while (flow->start < flow->end) {
        ssize_t count = write(flow->to, flow->bytes + flow->start, flow->end - flow->start);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0 && errno == EAGAIN)
            return;
        if (count < 0)
            exit(0);
        flow->start += (size_t)count;
    }
    flow->start = flow->end = 0;
}

/* Reads once and passes it on at once: most of the time there is room. */
static void pull(struct flow *flow) {
    ssize_t count = read(flow->from, flow->bytes, RELAY_BYTES);
    if (count < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (count <= 0)
        exit(0);
    flow->end = (size_t)count;
    if (is_busy)
        be_busy();
    push(flow);
}

static void no_waiting(int fd) {
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
        die("fcntl: %s", strerror(errno));
}

static void relay(const char *path) {
    struct sockaddr_un parent = address(path);
    int fd = stream_socket();
    if (connect(fd, (struct sockaddr *)&parent, sizeof parent) < 0)
        die("cannot connect to %s: %s", path, strerror(errno));
    no_waiting(STDIN_FILENO);
    no_waiting(STDOUT_FILENO);
    no_waiting(fd);
    up.from = STDIN_FILENO, up.to = fd;
    down.from = fd, down.to = STDOUT_FILENO;
    for (;;) {
        short parent_events = 0;
        if (up.end)
            parent_events |= POLLOUT;
        if (!down.end)
            parent_events |= POLLIN;
        /* A full buffer is written before its source is read again; poll skips a descriptor of -1. */
        struct pollfd ready[] = {
            {.fd = up.end ? -1 : STDIN_FILENO, .events = POLLIN},
            {.fd = fd, .events = parent_events},
            {.fd = down.end ? STDOUT_FILENO : -1, .events = POLLOUT},
        };
        if (poll(ready, 3, -1) < 0) {
            if (errno == EINTR)
                continue;
            die("poll: %s", strerror(errno));
        }
        if (ready[1].revents & POLLOUT)
            push(&up);
        if (ready[2].revents)
            push(&down);
        if (ready[0].revents)
            pull(&up);
        if (!down.end && (ready[1].revents & (POLLIN | POLLHUP | POLLERR)))
            pull(&down);
    }
}

/* ---- the parents ---- */

struct connection {
    int fd;
    char *bytes;
    size_t size, length;
};

static void grow(struct connection *connection, size_t size) {
    if (size <= connection->size)
        return;
    connection->bytes = realloc(connection->bytes, size);
    if (!connection->bytes)
        die("no memory for %zu bytes", size);
    connection->size = size;
}

/* Reads once; 0 when the peer has closed. */
static size_t more(struct connection *connection) {
    ssize_t count;
    do
        count = read(connection->fd, connection->bytes + connection->length, connection->size - connection->length);
    while (count < 0 && errno == EINTR);
    if (count <= 0)
        return 0;
    connection->length += (size_t)count;
    return (size_t)count;
}

static int write_all(int fd, struct iovec *parts, int count) {
    while (count > 0) {
        ssize_t written = writev(fd, parts, count);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return 0;
        while (count > 0 && (size_t)written >= parts->iov_len)
            written -= (ssize_t)parts->iov_len, parts++, count--;
        if (count > 0) {
            parts->iov_base = (char *)parts->iov_base + written;
            parts->iov_len -= (size_t)written;
        }
    }
    return 1;
}

static void check(const char *bytes, const char *end, const char *want, size_t length) {
    if (end - bytes < (ptrdiff_t)length || memcmp(bytes, want, length))
        die("a request that is not the benchmark's, at `%.*s`", (int)(end - bytes > 200 ? 200 : end - bytes), bytes);
}

#define PART(literal) ((struct iovec){(void *)(literal), LENGTH(literal)})

/* The result of the call whose tool's name begins at `name`; both ends are known, nothing is searched. */
static void result_of(char *name, char *end, struct iovec result[3]) {
    char *arguments = name + NAME_BYTES + LENGTH(ARGUMENTS_KEY), *stop = end - LENGTH(CALL_TAIL);
    check(name + NAME_BYTES, end, ARGUMENTS_KEY, LENGTH(ARGUMENTS_KEY));
    check(stop, end, CALL_TAIL, LENGTH(CALL_TAIL));
    if (!memcmp(name, "both", NAME_BYTES)) {
        result[0] = PART(BOTH_HEAD), result[2] = PART(BOTH_TAIL);
    } else {
        result[0] = PART(TEXT_HEAD), result[2] = PART(TEXT_TAIL);
        stop -= LENGTH(TEXT_ARGUMENTS_TAIL);
        if (!memcmp(name, "take", NAME_BYTES)) {
            arguments = stop - SHORT_TEXT_BYTES;
        } else {
            check(name, end, "echo", NAME_BYTES);
            check(arguments, end, TEXT_ARGUMENTS, LENGTH(TEXT_ARGUMENTS));
            arguments += LENGTH(TEXT_ARGUMENTS);
        }
    }
    if (arguments > stop)
        die("a request that is too short");
    result[1] = (struct iovec){arguments, (size_t)(stop - arguments)};
}

/* Answers the request between `line` and `end`, without its newline. */
static int answer_line(int fd, char *line, char *end) {
    char *call = line + LENGTH(LINE_HEAD) + ID_BYTES;
    check(line, end, LINE_HEAD, LENGTH(LINE_HEAD));
    check(call, end, LINE_CALL, LENGTH(LINE_CALL));
    /* The id is copied from the request. */
    struct iovec answer[6] = {{line, (size_t)(call - line)}, PART(LINE_RESULT)};
    result_of(call + LENGTH(LINE_CALL), end, answer + 2);
    answer[5] = PART("\n");
    return write_all(fd, answer, 6);
}

/* Reads requests to the last one that has begun, and answers them; 0 when the peer has closed. */
static int serve_lines(struct connection *connection) {
    size_t done = 0, searched = 0;
    do {
        grow(connection, FIRST_BUFFER_BYTES);
        if (connection->length == connection->size)
            grow(connection, connection->size * 2);
        if (!more(connection))
            return 0;
        char *newline;
        while ((newline = memchr(connection->bytes + searched, '\n', connection->length - searched))) {
            if (!answer_line(connection->fd, connection->bytes + done, newline))
                return 0;
            done = searched = (size_t)(newline - connection->bytes) + 1;
        }
        searched = connection->length;
    } while (done < connection->length);
    connection->length = 0;
    return 1;
}

static int serve_frame(struct connection *connection) {
    size_t want = PREFIX_BYTES;
    grow(connection, FIRST_BUFFER_BYTES);
    while (connection->length < want) {
        if (!more(connection))
            return 0;
        if (want == PREFIX_BYTES && connection->length >= PREFIX_BYTES) {
            const unsigned char *prefix = (unsigned char *)connection->bytes;
            want += (size_t)prefix[0] << 24 | (size_t)prefix[1] << 16 | (size_t)prefix[2] << 8 | prefix[3];
            grow(connection, want);
        }
    }
    if (connection->length != want)
        die("a second request before the first one was answered");
    char *request = connection->bytes + PREFIX_BYTES, *end = connection->bytes + want;
    check(request, end, FRAME_CALL, LENGTH(FRAME_CALL));
    struct iovec answer[5] = {{NULL, PREFIX_BYTES}, PART(FRAME_RESULT)};
    result_of(request + LENGTH(FRAME_CALL), end, answer + 2);
    size_t size = answer[1].iov_len + answer[2].iov_len + answer[3].iov_len + answer[4].iov_len;
    unsigned char prefix[] = {(unsigned char)(size >> 24), (unsigned char)(size >> 16), (unsigned char)(size >> 8),
                              (unsigned char)size};
    answer[0].iov_base = prefix;
    connection->length = 0;
    return write_all(connection->fd, answer, 5);
}

static void watch(int poller, int fd, void *who) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = who};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event) < 0)
        die("epoll_ctl: %s", strerror(errno));
}

static void parent(const char *path, int (*serve)(struct connection *)) {
    struct sockaddr_un own = address(path);
    int listener = stream_socket(), poller = epoll_create1(EPOLL_CLOEXEC);
    if (poller < 0 || bind(listener, (struct sockaddr *)&own, sizeof own) < 0 || listen(listener, MAX_CONNECTIONS) < 0)
        die("cannot listen on %s: %s", path, strerror(errno));
    static struct connection listening, leaving;
    watch(poller, listener, &listening);
    watch(poller, STDIN_FILENO, &leaving);
    /* The process that started us waits for this line, not for the socket file. */
    if (write(STDOUT_FILENO, "ready\n", 6) != 6)
        exit(1);
    for (;;) {
        struct epoll_event events[MAX_EVENTS];
        int count = epoll_wait(poller, events, MAX_EVENTS, -1);
        if (count < 0 && errno != EINTR)
            die("epoll_wait: %s", strerror(errno));
        for (int i = 0; i < count; i++) {
            struct connection *connection = events[i].data.ptr;
            if (connection == &leaving)
                exit(0);
            if (connection == &listening) {
                int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
                if (fd < 0)
                    die("accept: %s", strerror(errno));
                connection = calloc(1, sizeof *connection);
                if (!connection)
                    die("no memory for a connection");
                connection->fd = fd;
                watch(poller, fd, connection);
            } else if (!serve(connection)) {
                close(connection->fd);
                free(connection->bytes);
                free(connection);
            }
        }
    }
}

int main(int count, char **args) {
    /* `write` reports a closed peer. */
    signal(SIGPIPE, SIG_IGN);
    is_busy = count == 3 && !strcmp(args[1], "busy");
    if (is_busy || (count == 3 && !strcmp(args[1], "relay")))
        relay(args[2]);
    else if (count == 3 && !strcmp(args[1], "lines"))
        parent(args[2], serve_lines);
    else if (count == 3 && !strcmp(args[1], "frames"))
        parent(args[2], serve_frame);
    fputs("usage: floor relay|busy|lines|frames SOCKET\n", stderr);
    return 2;
}
