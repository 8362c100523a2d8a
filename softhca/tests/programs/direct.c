/* Drives the rings of a queue pair and a CQ by itself, as a data path of its own does: no function of libibverbs is
 * called while messages travel. Prints the median of the microseconds that a message after a rest takes, and the
 * milliseconds of processor time that a second of idling takes. */
#include "end.h"
#include <endian.h>
#include <infiniband/mlx5dv.h>

enum { OP_WRITE = 8, OPCODE_INVALID = 15 };

static double processor_time(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static struct end e;
static struct mlx5dv_qp qp;
static struct mlx5dv_cq cq;

/* Writes the number i + 1 to another place in our memory, and waits for it there and for the completion. */
static void message(uint32_t i)
{
	double start = now();
	volatile uint64_t *seen = (uint64_t *)(e.mem + 4096), *out = (uint64_t *)e.mem;
	*out = i + 1;
	/* Control, remote address and data segment: 3 units of 16 bytes. */
	uint32_t *w = (uint32_t *)((char *)qp.sq.buf + (i % qp.sq.wqe_cnt) * qp.sq.stride);
	uint64_t *d = (uint64_t *)w;
	w[0] = htobe32((i & 0xffff) << 8 | OP_WRITE);
	w[1] = htobe32(e.qp->qp_num << 8 | 3);
	w[2] = htobe32(8); /* a CQE */
	w[3] = 0;
	d[2] = htobe64((uintptr_t)seen);
	w[6] = htobe32(e.mr->rkey);
	w[7] = 0;
	w[8] = htobe32(8);
	w[9] = htobe32(e.mr->lkey);
	d[5] = htobe64((uintptr_t)out);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	qp.dbrec[1] = htobe32((i + 1) & 0xffff);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	*(volatile uint64_t *)((char *)qp.bf.reg + i % 2 * qp.bf.size) = d[0];
	while (*seen != i + 1)
		CHECK(now() < start + 10);
	volatile uint8_t *cqe = (uint8_t *)cq.buf + (i % cq.cqe_cnt) * 64;
	while (cqe[63] >> 4 == OPCODE_INVALID || (cqe[63] & 1) != !!(i & cq.cqe_cnt))
		CHECK(now() < start + 10);
	CHECK(cqe[63] >> 4 == 0);
	cq.dbrec[0] = htobe32((i + 1) & 0xffffff);
}

int main(void)
{
	enum { MANY = 1000, RESTS = 31 };
	double times[RESTS];
	e = end_open();
	end_connect(&e, end_where(&e), 14, 7);
	struct mlx5dv_obj o = { .qp = { e.qp, &qp }, .cq = { e.cq, &cq } };
	CHECK(!mlx5dv_init_obj(&o, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ));
	CHECK(cq.cqe_size == 64);
	for (uint32_t i = 0; i < MANY; i++)
		message(i);
	for (uint32_t i = 0; i < RESTS; i++) {
		usleep(50000 + i * 1300);
		double start = now();
		message(MANY + i);
		times[i] = now() - start;
	}
	qsort(times, RESTS, sizeof *times, by_value);
	usleep(100000);
	double before = processor_time();
	sleep(1);
	printf("%.0f %.0f\n", times[RESTS / 2] * 1e6, (processor_time() - before) * 1e3);
	return 0;
}
