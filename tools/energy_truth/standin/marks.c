/* A program of a user that works for a time: it prints its first and last moment.
 *
 * marks RELEASE_FILE SECONDS: writes its first moment to the file, which lets the world go on to its
 * work, and ends after so many seconds. Moments are nanoseconds of CLOCK_MONOTONIC. A program of C
 * starts in less than a millisecond, so its life is its work.
 *
 * Build: cc -O2 -o marks marks.c
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static long long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

int main(int count, char **words) {
    long long begin = now(), end;
    char fresh[4096];
    struct timespec until;
    FILE *file;
    if (count != 3) return 1;
    snprintf(fresh, sizeof fresh, "%s.new", words[1]);
    file = fopen(fresh, "w");
    if (!file || fprintf(file, "%lld", begin) < 0 || fclose(file)) return 1;
    if (rename(fresh, words[1])) return 1;
    end = begin + (long long)(atof(words[2]) * 1e9);
    until.tv_sec = end / 1000000000LL;
    until.tv_nsec = end % 1000000000LL;
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL)) { }
    printf("marks %lld %lld\n", begin, now());
    return 0;
}
