/* The functions that libsofthca.so offers besides the verbs libraries' own: what tests in Rust have as methods of
 * `Hca`. Without the library they are absent: declare them weak, or look them up by dlsym, in programs that also run
 * without it.
 *
 * The device starts when the program first looks for devices, with the settings of the environment (SOFTHCA_MODE and
 * so on), whether the library is preloaded or linked. Functions that return an int give 0, or an errno: ENODEV before
 * the device is started, EINVAL for an argument that means nothing. Counts start at 1, the next one; times are in
 * nanoseconds. Messages are those of this process; retransmissions count. */
#ifndef SOFTHCA_H
#define SOFTHCA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Making the device work: for SOFTHCA_MODE=manual, in which time is virtual ---- */

/* One pass of the device; 1 if anything was done. */
int softhca_step(void);

/* Steps until nothing is left to do; in manual mode time moves on to each timer. Gives the passes that had work. */
uint64_t softhca_run_until_idle(void);

/* The device's time since the start, and moving virtual time on. */
uint64_t softhca_now(void);
int softhca_advance(uint64_t ns);

/* ---- Looking at it ---- */

/* What the device did so far. */
struct softhca_stats {
	uint64_t doorbells; /* rung on send queues */
	uint64_t wqes; /* send requests executed */
	uint64_t cqes; /* completions written */
	uint64_t error_cqes; /* errors among them */
	uint64_t rnr_naks;
	uint64_t retries;
	uint64_t completion_events;
	uint64_t async_events;
	uint64_t checked_stores; /* trap mode: stores to registers */
	uint64_t checked_records; /* trap mode: stores to doorbell records */
	uint64_t faults; /* messages lost by an injected fault */
};

/* The objects that exist. */
struct softhca_objects {
	uint64_t contexts, pds, regions, windows, cqs, qps, srqs;
};

/* Pass sizeof *out: later versions may have more fields, of which so many bytes are written. */
int softhca_stats(struct softhca_stats *out, size_t size);
int softhca_objects(struct softhca_objects *out, size_t size);

/* How many rules of the device the program's driver broke since the last call of either function. The second one also
 * writes the texts of the first ones, a line each, as far as `size` bytes hold them with a final 0. */
uint64_t softhca_take_violations(void);
uint64_t softhca_take_violation_texts(char *out, size_t size);

/* The CPU owns this memory from now on (a device access is a violation), until it releases it. */
int softhca_cpu_owns(const void *addr, size_t len);
int softhca_cpu_releases(const void *addr);

/* ---- What goes wrong ---- */

/* The nth message is lost; is executed, but its answer is lost; arrives late; arrives with a wrong bit that the transport
 * doesn't see. */
int softhca_drop_message(uint64_t nth);
int softhca_drop_answer(uint64_t nth);
int softhca_delay_message(uint64_t nth, uint64_t ns);
int softhca_corrupt_message(uint64_t nth);

/* So many of a million messages are lost (0: none any more), always the same ones for a seed. */
int softhca_lose_messages(uint32_t ppm, uint64_t seed);

/* Each message takes so long (0: no time). */
int softhca_slow_down(uint64_t ns);

/* The nth control call (a verb that reaches the kernel) fails with this errno. */
int softhca_fail_verb(uint64_t nth, int error);

/* The next successful send completion has this status instead: an enum ibv_wc_status, such as IBV_WC_REM_OP_ERR. */
int softhca_fail_next_completion(int status);

/* The next completion of the CQ with this number (that of mlx5dv_init_obj) overruns it. */
int softhca_overrun_cq(uint32_t cqn);

/* The queue pair fails, as on a failing device: error state, IBV_EVENT_QP_FATAL. */
int softhca_fail_qp(uint32_t qp_num);

/* Takes the port of device dev (counted from 0) down (0) or up (1). */
int softhca_set_link(int dev, int up);

#ifdef __cplusplus
}
#endif

#endif
