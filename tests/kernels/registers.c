// Whether vector registers are what a thread has left in them: over system calls, beside threads that have others in
// theirs, over a signal's handler, and in a child. Ends with 1, and says how often not, if they are not.

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 3, ROUNDS = 6000, SIGNAL_EACH = 16, FORK_EACH = 128 };

// Puts `value` into two registers and makes a system call, whose result is stored. How much of them is another afterwards.
#define OVER_SYSTEM_CALL(put, differ, ...)                                                                                  \
	register long a __asm__("rdi") = first, b __asm__("rsi") = second, c __asm__("rdx") = third;                        \
	unsigned other;                                                                                                     \
	__asm__ volatile(put "syscall\n\t" differ                                                                           \
			 : "+a"(number), "=&r"(other), "+r"(a), "+r"(b), "+r"(c)                                            \
			 : "r"(value)                                                                                       \
			 : "rcx", "r11", "memory", __VA_ARGS__);                                                            \
	*result = number;                                                                                                   \
	return other

static unsigned over_sse(unsigned value, long number, long first, long second, long third, long *result)
{
	OVER_SYSTEM_CALL("movd %5, %%xmm5\n\tpshufd $0, %%xmm5, %%xmm5\n\tmovdqa %%xmm5, %%xmm15\n\t",
			 "movd %5, %%xmm6\n\tpshufd $0, %%xmm6, %%xmm6\n\t"
			 "pcmpeqd %%xmm6, %%xmm5\n\tpcmpeqd %%xmm6, %%xmm15\n\tpand %%xmm15, %%xmm5\n\t"
			 "pmovmskb %%xmm5, %1\n\txorl $0xffff, %1\n\t",
			 "xmm5", "xmm6", "xmm15");
}

__attribute__((target("avx512f"))) static unsigned over_avx512(unsigned value, long number, long first, long second,
								 long third, long *result)
{
	OVER_SYSTEM_CALL("vpbroadcastd %5, %%zmm5\n\tvmovdqa32 %%zmm5, %%zmm31\n\t",
			 "vpbroadcastd %5, %%zmm6\n\t"
			 "vpcmpneqd %%zmm5, %%zmm6, %%k1\n\tvpcmpneqd %%zmm31, %%zmm6, %%k2\n\tkorw %%k2, %%k1, %%k1\n\t"
			 "kmovw %%k1, %1\n\t",
			 "zmm5", "zmm6", "zmm31", "k1", "k2");
}

static unsigned (*over)(unsigned, long, long, long, long, long *) = over_sse;

static void leave_others(int number)
{
	long result;
	over((unsigned)number, SYS_getpid, 0, 0, 0, &result);
}

static void *rounds(void *wrong)
{
	unsigned self = (unsigned)syscall(SYS_gettid), value = self;
	for (int round = 1; round <= ROUNDS; round++) {
		long result;
		int status = 0;
		value = value * 1664525 + 1013904223;
		if (round % FORK_EACH == 0) {
			unsigned differs = over(value, SYS_fork, 0, 0, 0, &result);
			if (result == 0)
				_exit(differs != 0);
			*(long *)wrong += differs != 0;
			waitpid((pid_t)result, &status, 0);
			*(long *)wrong += status != 0;
		} else if (round % SIGNAL_EACH == 0) {
			*(long *)wrong += over(value, SYS_tgkill, getpid(), self, SIGUSR1, &result) != 0;
		} else {
			*(long *)wrong += over(value, SYS_sched_yield, 0, 0, 0, &result) != 0;
		}
	}
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];
	long wrong[THREADS] = {0}, sum = 0;
	if (__builtin_cpu_supports("avx512f"))
		over = over_avx512;
	signal(SIGUSR1, leave_others);
	for (int n = 0; n < THREADS; n++)
		if (pthread_create(&threads[n], NULL, rounds, &wrong[n]))
			return 2;
	for (int n = 0; n < THREADS; n++) {
		pthread_join(threads[n], NULL);
		sum += wrong[n];
	}
	printf("%ld of %d were other registers\n", sum, THREADS * ROUNDS);
	return sum != 0;
}
