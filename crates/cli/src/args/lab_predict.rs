//! Flags of `ropeway lab predict`.

use std::path::PathBuf;

use clap::Args;
use ropeway_lab::predict::{BLOCK_BYTES, CacheSize, DELAY_MAX, DELAYS};

use super::{AFTER_HELP, values};

/// `ropeway lab predict`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct LabPredictArgs {
    /// The trace: .lis or .csv, also packed as .zst or .gz
    #[arg(value_name = "TRACE")]
    pub(crate) trace: PathBuf,
    /// Size of the cache, in percent of the trace's different blocks or in bytes, e.g. 5% or 64M
    #[arg(long, value_name = "SIZE", default_value = "5%", value_parser = cache)]
    pub(crate) cache: CacheSize,
    /// Size of a block, a multiple of 512
    #[arg(long, value_name = "BYTES", default_value = "64K", value_parser = block)]
    pub(crate) block: u64,
    /// Requests that a prefetch takes; several are replayed one after the other
    #[arg(
        long,
        value_name = "REQUESTS",
        value_delimiter = ',',
        default_values_t = DELAYS,
        value_parser = clap::value_parser!(u32).range(0..=i64::from(DELAY_MAX))
    )]
    pub(crate) delay: Vec<u32>,
    /// Seed for the random choices of the cache
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// JSON Lines on standard output, one object for each delay
    #[arg(long)]
    pub(crate) json: bool,
}

fn cache(given: &str) -> Result<CacheSize, String> {
    let Some(percent) = given.strip_suffix('%') else {
        return match values::size(given)? {
            0 => Err("a cache is larger than nothing".to_owned()),
            bytes => Ok(CacheSize::Bytes(bytes)),
        };
    };
    let percent: Option<f64> = percent.trim().parse().ok();
    let percent = percent.filter(|percent| *percent > 0.0 && *percent <= 100.0);
    let percent = percent.ok_or("give a percentage above 0 and up to 100, such as 5%")?;
    Ok(CacheSize::Percent(percent))
}

fn block(given: &str) -> Result<u64, String> {
    let bytes = values::size(given)?;
    match BLOCK_BYTES.contains(&bytes) && bytes.is_multiple_of(512) {
        true => Ok(bytes),
        false => Err("a block has 512 bytes to 16M, a multiple of 512".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_is_a_percentage_or_a_size() {
        assert_eq!(cache("5%"), Ok(CacheSize::Percent(5.0)));
        assert_eq!(cache("0.5 %"), Ok(CacheSize::Percent(0.5)));
        assert_eq!(cache("64M"), Ok(CacheSize::Bytes(64 << 20)));
        for wrong in ["0%", "101%", "x%", "NaN%", "inf%", "-1%", "0", "", "%"] {
            assert!(cache(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_block_is_a_multiple_of_a_sector() {
        assert_eq!(block("64k"), Ok(65_536));
        for wrong in ["0", "511", "1000", "32M"] {
            assert!(block(wrong).is_err(), "{wrong}");
        }
    }
}
