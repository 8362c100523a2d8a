/* Threads that post on queue pairs of their own, and reset them, on one context. Prints "ok". */
#include "end.h"
#include <pthread.h>

static struct ibv_context *ctx;

static void *work(void *unused)
{
	struct end e = end_on(ctx);
	struct where own = end_where(&e);
	for (uint64_t i = 0; i < 1000; i++) {
		if (i % 4 == 0) {
			struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
			CHECK(!ibv_modify_qp(e.qp, &reset, IBV_QP_STATE));
			end_connect(&e, own, 14, 7);
		}
		end_post(&e, IBV_WR_RDMA_WRITE, i, 64, own);
		struct ibv_wc wc = end_wait(&e);
		CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == i);
	}
	return unused;
}

int main(void)
{
	ctx = end_open().ctx;
	pthread_t t[6];
	for (int i = 0; i < 6; i++)
		CHECK(!pthread_create(t + i, NULL, work, NULL));
	for (int i = 0; i < 6; i++)
		CHECK(!pthread_join(t[i], NULL));
	puts("ok");
	return 0;
}
