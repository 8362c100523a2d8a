/* Each function of softhca.h, in manual mode. Prints "ok". */
#include "end.h"
#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <softhca.h>

static struct ibv_context *ctx;

/* A write to itself, done; its status. */
static int status_of_write(struct end *e)
{
	struct ibv_wc wc;
	end_post(e, IBV_WR_RDMA_WRITE, 1, 64, (struct where){ .rkey = e->mr->rkey, .addr = (uintptr_t)e->mem + 4096 });
	softhca_run_until_idle();
	int n = ibv_poll_cq(e->cq, 1, &wc);
	return n == 1 ? (int)wc.status : -1;
}

static struct end connected(void)
{
	struct end e = end_on(ctx);
	end_connect(&e, end_where(&e), 14, 3);
	memset(e.mem, 'x', 64);
	return e;
}

static void end_close(struct end *e)
{
	CHECK(!ibv_destroy_qp(e->qp) && !ibv_destroy_cq(e->cq) && !ibv_destroy_comp_channel(e->channel));
	CHECK(!ibv_dereg_mr(e->mr) && !ibv_dealloc_pd(e->pd));
	free(e->mem);
}

/* The next asynchronous event, which is there. */
static int event(void)
{
	struct ibv_async_event a;
	CHECK(!ibv_get_async_event(ctx, &a));
	ibv_ack_async_event(&a);
	return a.event_type;
}

static struct softhca_stats stats(void)
{
	struct softhca_stats s;
	CHECK(!softhca_stats(&s, sizeof s));
	return s;
}

static void before_the_start(void)
{
	struct softhca_stats s;
	CHECK(softhca_step() == 0 && softhca_run_until_idle() == 0 && softhca_now() == 0);
	CHECK(softhca_drop_message(1) == ENODEV && softhca_fail_qp(256) == ENODEV && softhca_set_link(0, 0) == ENODEV);
	CHECK(softhca_stats(&s, sizeof s) == ENODEV && softhca_overrun_cq(1) == ENODEV);
}

static void what_means_nothing(void)
{
	CHECK(softhca_drop_message(0) == EINVAL && softhca_delay_message(0, 1) == EINVAL && softhca_drop_answer(0) == EINVAL);
	CHECK(softhca_corrupt_message(0) == EINVAL && softhca_lose_messages(1000001, 1) == EINVAL);
	CHECK(softhca_fail_verb(0, ENOMEM) == EINVAL && softhca_fail_verb(1, 0) == EINVAL);
	CHECK(softhca_fail_next_completion(IBV_WC_SUCCESS) == EINVAL && softhca_fail_next_completion(99) == EINVAL);
	CHECK(softhca_overrun_cq(999) == EINVAL && softhca_fail_qp(999) == EINVAL);
	CHECK(softhca_set_link(1, 0) == EINVAL && softhca_set_link(-1, 0) == EINVAL && softhca_set_link(0, 2) == EINVAL);
	CHECK(softhca_cpu_owns(NULL, 1) == EINVAL && softhca_stats(NULL, 8) == EINVAL);
}

static void messages(void)
{
	struct end e = connected();
	struct softhca_stats before = stats(), after;
	CHECK(!softhca_drop_message(1) && status_of_write(&e) == IBV_WC_SUCCESS);
	after = stats();
	CHECK(after.faults == before.faults + 1 && after.retries == before.retries + 1 && after.wqes > before.wqes);

	before = after;
	CHECK(!softhca_drop_answer(1) && status_of_write(&e) == IBV_WC_SUCCESS);
	after = stats();
	CHECK(after.faults == before.faults + 1 && after.retries == before.retries + 1);

	uint64_t t = softhca_now();
	CHECK(!softhca_delay_message(2, 5000000) && status_of_write(&e) == IBV_WC_SUCCESS && softhca_now() == t);
	CHECK(status_of_write(&e) == IBV_WC_SUCCESS && softhca_now() == t + 5000000);
	CHECK(!softhca_advance(100) && softhca_now() == t + 5000100);

	t = softhca_now();
	CHECK(!softhca_slow_down(1000) && status_of_write(&e) == IBV_WC_SUCCESS && softhca_now() >= t + 1000);
	CHECK(!softhca_slow_down(0));

	CHECK(!softhca_corrupt_message(1) && status_of_write(&e) == IBV_WC_SUCCESS);
	CHECK(e.mem[4096] != 'x' && e.mem[4097] == 'x');

	CHECK(!softhca_lose_messages(1000000, 1) && status_of_write(&e) == IBV_WC_RETRY_EXC_ERR);
	CHECK(!softhca_lose_messages(0, 0));
	end_close(&e);
}

static void completions_and_queues(void)
{
	struct end e = connected();
	CHECK(!softhca_fail_next_completion(IBV_WC_REM_OP_ERR) && status_of_write(&e) == IBV_WC_REM_OP_ERR);
	end_close(&e);

	e = connected();
	struct mlx5dv_cq cq = { 0 };
	struct mlx5dv_obj o = { .cq = { e.cq, &cq } };
	CHECK(!mlx5dv_init_obj(&o, MLX5DV_OBJ_CQ) && !softhca_overrun_cq(cq.cqn));
	CHECK(status_of_write(&e) == -1 && event() == IBV_EVENT_CQ_ERR && event() == IBV_EVENT_QP_FATAL);
	end_close(&e);

	e = connected();
	CHECK(!softhca_fail_qp(e.qp->qp_num) && event() == IBV_EVENT_QP_FATAL);
	CHECK(status_of_write(&e) == IBV_WC_WR_FLUSH_ERR);
	end_close(&e);
}

static void verbs_and_ports(void)
{
	struct ibv_port_attr port;
	CHECK(!softhca_fail_verb(1, ENOMEM) && !ibv_alloc_pd(ctx) && errno == ENOMEM);
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	CHECK(pd && !ibv_dealloc_pd(pd));
	CHECK(!softhca_set_link(0, 0) && event() == IBV_EVENT_PORT_ERR);
	CHECK(!ibv_query_port(ctx, 1, &port) && port.state == IBV_PORT_DOWN);
	CHECK(!softhca_set_link(0, 1) && event() == IBV_EVENT_PORT_ACTIVE);
}

static void rules(void)
{
	struct end e = connected();
	char text[100];
	CHECK(softhca_take_violations() == 0 && !softhca_cpu_owns(e.mem + 4096, 8));
	CHECK(status_of_write(&e) == IBV_WC_SUCCESS);
	CHECK(softhca_take_violation_texts(text, sizeof text) == 1 && strstr(text, "which the CPU owns"));
	CHECK(strlen(text) < sizeof text && !softhca_cpu_releases(e.mem + 4096));
	CHECK(status_of_write(&e) == IBV_WC_SUCCESS && softhca_take_violation_texts(text, 1) == 0 && !text[0]);
	struct softhca_objects all, few = { .pds = 77 };
	CHECK(!softhca_objects(&all, sizeof all) && all.contexts == 1 && all.pds == 1 && all.qps == 1 && all.cqs == 1);
	CHECK(all.regions == 1 && all.windows == 0 && all.srqs == 0);
	CHECK(!softhca_objects(&few, sizeof few.contexts) && few.contexts == 1 && few.pds == 77);
	end_close(&e);
}

int main(void)
{
	before_the_start();
	struct ibv_device **list = ibv_get_device_list(NULL);
	CHECK(list && list[0] && (ctx = ibv_open_device(list[0])));
	CHECK(softhca_step() == 0);
	what_means_nothing();
	messages();
	completions_and_queues();
	verbs_and_ports();
	rules();
	CHECK(!ibv_close_device(ctx));
	puts("ok");
	return 0;
}
