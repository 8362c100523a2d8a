/* Says what it sees: of 20 protection domains those that can't be had, of 4 writes to itself how each ended (and
 * whether it brought wrong data) after how many milliseconds, and asynchronous events for as
 * many milliseconds as its argument says. */
#include "end.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	struct end e = end_open();
	double start = now();
	end_connect(&e, end_where(&e), 14, 1);
	for (int i = 0; i < 20; i++) {
		struct ibv_pd *pd = ibv_alloc_pd(e.ctx);
		if (!pd)
			printf("pd: %s\n", strerror(errno));
		else
			CHECK(!ibv_dealloc_pd(pd));
	}
	for (int i = 1; i <= 4; i++) {
		struct ibv_wc wc = { .status = IBV_WC_GENERAL_ERR };
		double posted = now();
		memset(e.mem, 'a' + i, 64);
		struct where to = { .rkey = e.mr->rkey, .addr = (uintptr_t)e.mem + 4096 };
		end_post(&e, IBV_WR_RDMA_WRITE, i, 64, to);
		while (!ibv_poll_cq(e.cq, 1, &wc) && now() < posted + 1)
			;
		double took = now() - posted;
		printf("write %d: %s%s @%.0f\n", i, took < 1 ? ibv_wc_status_str(wc.status) : "nothing",
		       memcmp(e.mem, e.mem + 4096, 64) ? ", wrong" : "", took * 1e3);
	}
	fcntl(e.ctx->async_fd, F_SETFL, O_NONBLOCK);
	struct pollfd f = { .fd = e.ctx->async_fd, .events = POLLIN };
	while (now() < start + atoi(argv[1]) * 1e-3 || poll(&f, 1, 0) == 1) {
		struct ibv_async_event a;
		if (poll(&f, 1, 20) != 1 || ibv_get_async_event(e.ctx, &a))
			continue;
		printf("event: %s\n", ibv_event_type_str(a.event_type));
		ibv_ack_async_event(&a);
	}
	return 0;
}
