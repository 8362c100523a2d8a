/* Two processes. One arms its CQ, polls in vain for a while, and then sleeps in ibv_get_cq_event; just then the other
 * sends. Prints the median of the microseconds from the send to the wake-up. */
#include "end.h"
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { ROUNDS = 31, VAIN = 200 };

struct shared { volatile int round; volatile double sent; };

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

int main(void)
{
	int s[2], status = -1;
	struct shared *m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(m != MAP_FAILED && !socketpair(AF_UNIX, SOCK_STREAM, 0, s));
	pid_t child = fork();
	struct end e = end_open();
	end_connect(&e, end_exchange(&e, s[!child]), 14, 7);
	double times[ROUNDS];
	for (int i = 1; i <= ROUNDS; i++) {
		if (!child) {
			while (m->round != i)
				;
			m->sent = now();
			end_post(&e, IBV_WR_SEND, i, 8, (struct where){ 0 });
			CHECK(end_wait(&e).status == IBV_WC_SUCCESS);
			continue;
		}
		end_recv(&e, i, 8);
		struct ibv_wc wc;
		struct ibv_cq *cq;
		void *context;
		CHECK(!ibv_req_notify_cq(e.cq, 0));
		for (int n = 0; n < VAIN; n++)
			CHECK(ibv_poll_cq(e.cq, 1, &wc) == 0);
		m->round = i;
		CHECK(!ibv_get_cq_event(e.channel, &cq, &context));
		times[i - 1] = now() - m->sent;
		ibv_ack_cq_events(cq, 1);
		CHECK(end_wait(&e).status == IBV_WC_SUCCESS);
		usleep(50000 + i * 1300); /* The device's thread comes to rest. */
	}
	if (!child)
		return 0;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	qsort(times, ROUNDS, sizeof *times, by_value);
	printf("%.0f\n", times[ROUNDS / 2] * 1e6);
	return 0;
}
