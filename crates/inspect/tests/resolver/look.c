/* Looks a name up: look gai|byname NAME. Prints microseconds, and whether it was found. */
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

int main(int argc, char **argv)
{
    struct timespec from, to;
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *list = NULL;
    int found;

    if (argc != 3)
        return 2;
    clock_gettime(CLOCK_MONOTONIC, &from);
    if (strcmp(argv[1], "gai") == 0)
        found = getaddrinfo(argv[2], NULL, &hints, &list) == 0;
    else
        found = gethostbyname(argv[2]) != NULL;
    clock_gettime(CLOCK_MONOTONIC, &to);
    printf("%lld %s\n", (to.tv_sec - from.tv_sec) * 1000000LL + (to.tv_nsec - from.tv_nsec) / 1000,
           found ? "found" : "lost");
    return 0;
}
