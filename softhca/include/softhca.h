/* The functions that libsofthca.so offers besides the verbs libraries' own. Without the library they are absent:
 * declare them weak, or look them up by dlsym, in programs that also run without it. */
#ifndef SOFTHCA_H
#define SOFTHCA_H

#ifdef __cplusplus
extern "C" {
#endif

/* One pass of the device; 1 if anything was done. For SOFTHCA_MODE=manual. */
int softhca_step(void);

/* Steps until nothing is left to do; in manual mode time moves on to each timer. */
void softhca_run_until_idle(void);

/* How many rules of the device the program's driver broke since the last call. */
unsigned long long softhca_take_violations(void);

/* Takes the port of device dev (counted from 0) down (0) or up (1). */
void softhca_set_link(int dev, int up);

/* The nth message from now on (1: the next) is lost. */
void softhca_drop_message(unsigned long long nth);

#ifdef __cplusplus
}
#endif

#endif
