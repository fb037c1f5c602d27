/* Allocates a little, and waits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(void)
{
	for (int i = 0; i < 5000; i++)
		memset(malloc(100), 'x', 100);
	puts("ready");
	fflush(stdout);
	pause();
}
