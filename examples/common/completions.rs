//! Waiting for completions.

use std::time::{Duration, Instant};

use ibv::{Arm, CompletionQueue, WorkCompletion};

use super::{Options, Result};

/// How often to poll between two looks at the clock.
const POLLS: u32 = 1000;

/// The completions of a queue, for which one waits only so long.
pub(crate) struct Completions<'c> {
    cq: &'c CompletionQueue<'c>,
    found: [WorkCompletion; 16],
    patience: Option<Duration>,
}

impl<'c> Completions<'c> {
    pub(crate) fn new(cq: &'c CompletionQueue<'c>, options: &Options) -> Self {
        Self { cq, found: [WorkCompletion::default(); 16], patience: options.patience }
    }

    /// Waits for the next ones: at least one.
    pub(crate) fn wait(&mut self) -> Result<&[WorkCompletion]> {
        let count = match self.cq.channel() {
            Some(_) => self.sleep()?,
            None => self.spin()?,
        };
        Ok(self.found.get(..count).unwrap_or_default())
    }

    fn poll(&mut self) -> Result<usize> {
        Ok(self.cq.poll(&mut self.found)?.len())
    }

    fn spin(&mut self) -> Result<usize> {
        let mut started = None;
        loop {
            for _ in 0..POLLS {
                match self.poll()? {
                    0 => std::hint::spin_loop(),
                    count => return Ok(count),
                }
            }
            let started = *started.get_or_insert_with(Instant::now);
            if self.patience.is_some_and(|patience| started.elapsed() >= patience) {
                return Err(self.given_up());
            }
        }
    }

    fn sleep(&mut self) -> Result<usize> {
        let started = Instant::now();
        loop {
            // armed first: what completes after that poll raises an event
            let mut count = self.poll()?;
            if count == 0 {
                self.cq.arm(Arm::Any)?;
                count = self.poll()?;
            }
            if count > 0 {
                return Ok(count);
            }
            let Some(channel) = self.cq.channel() else { continue };
            match self.patience {
                None => drop(channel.wait()?),
                Some(patience) => {
                    let left = patience.saturating_sub(started.elapsed());
                    // an event may be an old one, of completions that are polled already
                    if channel.wait_timeout(left)?.is_none() {
                        return Err(self.given_up());
                    }
                }
            }
        }
    }

    fn given_up(&self) -> Box<dyn std::error::Error> {
        let seconds = self.patience.unwrap_or_default().as_secs_f64();
        format!(
            "nothing from the peer for {seconds} s: it is gone, or messages were lost, or its size, MTU or number of \
             exchanges differs (--idle-timeout sets how long to wait)"
        )
        .into()
    }
}
