/* In front of the C library of a process: file operations that fail, that the process dies at, and another time of day.

   What happens is in a page that is shared with the test (`Page`, as in faulty_system.py), whose path is in FAULTY_SYSTEM. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define LENGTH 512

struct Page {
    volatile int64_t offset_ns;   /* added to the time of day */
    volatile int64_t read_error;  /* errno of reads below `place`, 0 for none */
    volatile int64_t write_error; /* the same for what changes files */
    volatile int64_t die_at;      /* the number of the operation that changes files below `place` before which it dies */
    volatile int64_t count;       /* of these operations */
    char place[LENGTH];
    char last[LENGTH];            /* the path of the last of these operations */
};

static struct Page nothing;
static struct Page *page = &nothing;

__attribute__((constructor)) static void find_page(void) {
    const char *path = getenv("FAULTY_SYSTEM");
    int file = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC) : -1;
    if (file >= 0) {
        void *found = mmap(NULL, sizeof(struct Page), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (found != MAP_FAILED) page = found;
        syscall(SYS_close, file);
    }
}

static int is_meant(const char *path) {
    size_t length = strlen(page->place);
    return length && path && !strncmp(path, page->place, length);
}

static const char *path_of(int file, char *buffer) {
    char link[64];
    if (!page->place[0] || file < 0) return NULL;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, buffer, LENGTH - 1);
    if (length < 0) return NULL;
    buffer[length] = 0;
    return buffer;
}

/* What becomes of an operation that changes files: 0 for nothing, else the errno; `tear` is called before it dies. */
static int changing(const char *path, void (*tear)(int, const void *, size_t), int file, const void *data, size_t size) {
    if (!is_meant(path)) return 0;
    strncpy(page->last, path, LENGTH - 1);
    int64_t number = __sync_add_and_fetch(&page->count, 1);
    if (page->die_at && number == page->die_at) {
        if (tear) tear(file, data, size / 2);
        kill(getpid(), SIGKILL);
        pause();
    }
    return (int)page->write_error;
}

#define REAL(name) ({ static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name); real; })
#define FAIL_IF(error) do { int code = (error); if (code) { errno = code; return -1; } } while (0)

static void tear_write(int file, const void *data, size_t size) {
    ssize_t done = REAL(write)(file, data, size);
    (void)done;
}

#define OPEN(name)                                                                       \
    int name(const char *path, int flags, ...) {                                         \
        va_list rest;                                                                    \
        va_start(rest, flags);                                                           \
        mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(rest, mode_t) : 0;        \
        va_end(rest);                                                                    \
        if (flags & (O_CREAT | O_TRUNC)) FAIL_IF(changing(path, NULL, -1, NULL, 0));     \
        return REAL(name)(path, flags, mode);                                            \
    }
OPEN(open)
OPEN(open64)

#define READ(name, extra, pass)                                                          \
    ssize_t name(int file, void *data, size_t size extra) {                              \
        char path[LENGTH];                                                               \
        if (page->read_error && is_meant(path_of(file, path))) FAIL_IF((int)page->read_error); \
        return REAL(name)(file, data, size pass);                                        \
    }
#define COMMA ,
READ(read, , )
READ(pread, COMMA off_t place, COMMA place)
READ(pread64, COMMA off64_t place, COMMA place)

#define WRITE(name, extra, pass, tear)                                                   \
    ssize_t name(int file, const void *data, size_t size extra) {                        \
        char path[LENGTH];                                                               \
        FAIL_IF(changing(path_of(file, path), tear, file, data, size));                  \
        return REAL(name)(file, data, size pass);                                        \
    }
WRITE(write, , , tear_write)
WRITE(pwrite, COMMA off_t place, COMMA place, NULL)
WRITE(pwrite64, COMMA off64_t place, COMMA place, NULL)

#define ON_FILE(name, extra, pass)                                                       \
    int name(int file extra) {                                                           \
        char path[LENGTH];                                                               \
        FAIL_IF(changing(path_of(file, path), NULL, file, NULL, 0));                     \
        return REAL(name)(file pass);                                                    \
    }
ON_FILE(fsync, , )
ON_FILE(fdatasync, , )
ON_FILE(ftruncate, COMMA off_t length, COMMA length)
ON_FILE(ftruncate64, COMMA off64_t length, COMMA length)

int rename(const char *from, const char *to) {
    FAIL_IF(changing(to, NULL, -1, NULL, 0));
    return REAL(rename)(from, to);
}

int unlink(const char *path) {
    FAIL_IF(changing(path, NULL, -1, NULL, 0));
    return REAL(unlink)(path);
}

static void jump(struct timespec *at) {
    int64_t ns = at->tv_nsec + page->offset_ns % 1000000000;
    at->tv_sec += page->offset_ns / 1000000000 + (ns >= 1000000000) - (ns < 0);
    at->tv_nsec = (ns + 1000000000) % 1000000000;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    int done = REAL(clock_gettime)(clock, at);
    if (!done && page->offset_ns && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) jump(at);
    return done;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
