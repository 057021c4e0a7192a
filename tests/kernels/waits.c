// A thread that waits in a loop, without a system call, for another one that has not begun.

#include <pthread.h>

static volatile int begun;

static void *begin(void *unused)
{
	(void)unused;
	begun = 1;
	return 0;
}

int main(void)
{
	pthread_t other;
	if (pthread_create(&other, 0, begin, 0))
		return 2;
	while (!begun)
		;
	return pthread_join(other, 0);
}
