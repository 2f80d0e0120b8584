/*
 * Lets a FIFO stand for the GPU's ring of context switches: it is loaded before the C library.
 *
 * Entries are read from the FIFO itself. A request of the ring's kind succeeds, and is appended to
 * the file $RING_REQUESTS. The header that is mapped is the file $RING_HEADER.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int is_ring(int fd) {
    struct stat found;
    return fd >= 0 && fstat(fd, &found) == 0 && S_ISFIFO(found.st_mode) && getenv("RING_HEADER");
}

int ioctl(int fd, unsigned long request, ...) {
    va_list arguments;
    va_start(arguments, request);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    if (is_ring(fd) && (request >> 8 & 0xff) == 'C') {
        int log = open(getenv("RING_REQUESTS"), O_WRONLY | O_APPEND | O_CREAT, 0600);
        char number = '0' + (request & 0xff);
        int written = write(log, &number, 1);
        close(log);
        return written == 1 ? 0 : -1;
    }
    int (*real)(int, unsigned long, ...) = dlsym(RTLD_NEXT, "ioctl");
    return real(fd, request, argument);
}

void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset) {
    void *(*real)(void *, size_t, int, int, int, off_t) = dlsym(RTLD_NEXT, "mmap");
    if (!is_ring(fd))
        return real(address, length, protection, flags, fd, offset);
    int header = open(getenv("RING_HEADER"), O_RDONLY);
    void *mapped = real(address, length, protection, flags, header, offset);
    close(header);
    return mapped;
}
void *mmap64(void *address, size_t length, int protection, int flags, int fd, off_t offset)
    __attribute__((alias("mmap")));
