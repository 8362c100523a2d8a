/* Cancels a thread that posts and polls. These calls are no cancellation points, and so it goes on until it looks for
 * itself, and nobody finds the device in the middle of something. Prints "ok". */
#include "end.h"
#include <pthread.h>

static struct end e;
static volatile int stop;

static void *work(void *done)
{
	do {
		CHECK(!ibv_req_notify_cq(e.cq, 0));
		end_post(&e, IBV_WR_RDMA_WRITE, 1, 4096, end_where(&e));
		CHECK(end_wait(&e).status == IBV_WC_SUCCESS);
	} while (!stop);
	return done;
}

int main(void)
{
	e = end_open();
	end_connect(&e, end_where(&e), 14, 7);
	for (int i = 0; i < 20; i++) {
		pthread_t t;
		void *how;
		stop = 0;
		CHECK(!pthread_create(&t, NULL, work, &e));
		usleep(1000);
		CHECK(!pthread_cancel(t));
		usleep(1000);
		stop = 1;
		CHECK(!pthread_join(t, &how) && how == &e);
	}
	puts("ok");
	return 0;
}
