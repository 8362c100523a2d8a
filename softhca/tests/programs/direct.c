/* Drives the rings of a queue pair and a CQ by itself, as a data path of its own does: no function of libibverbs is
 * called while messages travel. Prints "ok", and the processor time that a second of idling took. */
#include "end.h"
#include <endian.h>
#include <infiniband/mlx5dv.h>
#include <sys/resource.h>

enum { OP_WRITE = 8, OPCODE_INVALID = 15 };

static double processor_time(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

int main(void)
{
	struct end e = end_open();
	end_connect(&e, end_where(&e), 14, 7);
	struct mlx5dv_qp qp = { 0 };
	struct mlx5dv_cq cq = { 0 };
	struct mlx5dv_obj o = { .qp = { e.qp, &qp }, .cq = { e.cq, &cq } };
	CHECK(!mlx5dv_init_obj(&o, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ));
	CHECK(cq.cqe_size == 64);
	uint32_t half = 0;
	double slowest = 0;
	for (uint32_t i = 0; i < 1000; i++) {
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
		*(volatile uint64_t *)((char *)qp.bf.reg + half) = d[0];
		half ^= qp.bf.size;
		while (*seen != i + 1)
			CHECK(now() < start + 10);
		volatile uint8_t *cqe = (uint8_t *)cq.buf + (i % cq.cqe_cnt) * 64;
		while (cqe[63] >> 4 == OPCODE_INVALID || (cqe[63] & 1) != !!(i & cq.cqe_cnt))
			CHECK(now() < start + 10);
		CHECK(cqe[63] >> 4 == 0);
		cq.dbrec[0] = htobe32((i + 1) & 0xffffff);
		if (i > 10 && now() - start > slowest)
			slowest = now() - start;
		if (i == 500)
			usleep(200000);
	}
	usleep(100000);
	double before = processor_time();
	sleep(1);
	printf("ok %.0f\n", (processor_time() - before) * 1e3);
	fprintf(stderr, "slowest %.0f us\n", slowest * 1e6);
	return 0;
}
