/*
 * Two processes send a byte to and fro through two pipes until they are killed: the shortest request and answer
 * that a kernel can serve, and two switches of context for each. Counts each round trip where counts.h says.
 */
#include <signal.h>
#include <sys/prctl.h>

#include "counts.h"

static int answer(int from, int to)
{
	char byte;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (read(from, &byte, 1) == 1)
		if (write(to, &byte, 1) != 1)
			return 1;
	return 0;
}

int main(void)
{
	int ask[2], reply[2];
	uint64_t before, after;
	char byte = 0;

	if (pipe(ask) || pipe(reply))
		return 2;
	if (fork() == 0) {
		close(ask[1]);
		return answer(ask[0], reply[1]);
	}
	close(ask[0]);
	open_counts();
	for (before = now_ns(); write(ask[1], &byte, 1) == 1 && read(reply[0], &byte, 1) == 1; before = after) {
		after = now_ns();
		count_request(before, after);
	}
	return 1;
}
