//! How many requests come while a fetch takes place: latency x demand rate.

use std::time::Duration;

use crate::predict::LAG_MAX;

/// Weight of the newest measurement. A guess: about the last 16 count.
const NEWEST: f64 = 1.0 / 16.0;
/// Pauses longer than this are no demand: a reader that thinks, not one that reads. A guess.
const PAUSE: Duration = Duration::from_secs(1);

/// Measures latency and demand.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lag {
    last: Option<Duration>,
    between_s: Option<f64>,
    latency_s: Option<f64>,
}

fn mean(old: Option<f64>, new: f64) -> f64 {
    old.map_or(new, |old| old + (new - old) * NEWEST)
}

impl Lag {
    /// A program requests a block at a moment of the caller's monotonic clock.
    pub fn request(&mut self, now: Duration) {
        let between = self.last.map(|last| now.saturating_sub(last));
        self.last = Some(now);
        if let Some(between) = between.filter(|between| *between < PAUSE) {
            self.between_s = Some(mean(self.between_s, between.as_secs_f64()));
        }
    }

    /// A fetch took so long, its time in the queue included.
    pub fn fetched(&mut self, latency: Duration) {
        self.latency_s = Some(mean(self.latency_s, latency.as_secs_f64()));
    }

    /// Returns the lag for [`Predictor::set_lag`](crate::predict::Predictor::set_lag): 1 as long as
    /// nothing is known.
    pub fn requests(&self) -> u32 {
        let (Some(latency), Some(between)) = (self.latency_s, self.between_s) else {
            return 1;
        };
        // Requests that come at once would make it infinite; the cast saturates.
        (latency / between.max(1e-6))
            .ceil()
            .clamp(1.0, f64::from(LAG_MAX)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lag_is_latency_times_rate_and_pauses_do_not_count() {
        let mut lag = Lag::default();
        assert_eq!(lag.requests(), 1);
        for request in 0..100 {
            let pause = Duration::from_secs(request / 10 * 60);
            lag.request(pause + Duration::from_millis(10 * request));
        }
        lag.fetched(Duration::from_millis(75));
        assert_eq!(lag.requests(), 8);
        for _ in 0..500 {
            lag.request(Duration::from_secs(9000));
        }
        assert_eq!(lag.requests(), LAG_MAX);
    }
}
