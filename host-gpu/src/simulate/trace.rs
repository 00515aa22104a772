//! Loads that are made up: many tenants' functions, most of which are called very rarely.
//!
//! It follows Shahrad et al., Serverless in the Wild, USENIX ATC 2020, who found in a large provider's whole load that most
//! functions are invoked very infrequently, while the frequencies range over eight orders of magnitude. Here the
//! functions' rates are log-normal, with the middle 99.7 percent of them over so many orders; that it is this curve, and
//! what else is set below, is our own choice and no finding of theirs. In particular calls come at random moments (a
//! Poisson process), not by the clock or by the time of day.
//!
//! The same load and seed give the same trace on the same machine; between machines the last bit of a logarithm may differ.

use std::f64::consts::LN_10;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;

use super::Arrival;
use crate::Class;
use crate::error::nanos;

/// The standard deviation of the logarithms of rates: three of them to both sides are eight orders of magnitude.
const SIGMA: f64 = 8.0 * LN_10 / 6.0;

/// A load to be made up.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// Functions, each with a model of its own. They are dealt out to the tenants in turn.
    pub functions: u32,
    pub tenants: u32,
    pub duration: Duration,
    /// Calls per second of all functions together, on average.
    pub rate: f64,
    /// Calls that come at one moment, on average.
    pub burst: u32,
    /// Percent of the calls that are critical, and that are of the batch class.
    pub critical: u8,
    pub batch: u8,
    pub flood: Option<Flood>,
}

/// A tenant that calls one model all the time, beside the others.
#[derive(Debug, Clone, PartialEq)]
pub struct Flood {
    pub tenant: Arc<str>,
    pub model: Arc<str>,
    /// Calls per second.
    pub rate: f64,
}

impl Default for Load {
    fn default() -> Self {
        let duration = Duration::from_secs(600);
        Self {
            functions: 1000,
            tenants: 100,
            duration,
            rate: 200.0,
            burst: 1,
            critical: 0,
            batch: 0,
            flood: None,
        }
    }
}

/// The calls of a load, in the order of their times.
pub fn generate(load: &Load, seed: u64) -> impl Iterator<Item = Arrival> + use<> {
    Calls::new(load, seed)
}

/// All functions are one Poisson process, and each of its events is one of them by its rate: that is the same as a
/// process for each of them.
struct Calls {
    rng: Rng,
    functions: Vec<(Arc<str>, Arc<str>)>,
    /// The rates of the functions up to each, summed up.
    rates: Vec<f64>,
    load: Load,
    end: u64,
    now: u64,
    /// The function whose burst it is, and the calls of it that are to come.
    bursting: (usize, u32),
}

impl Calls {
    fn new(load: &Load, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        // Evenly through the distribution and not at random, so that the load is as skewed with every seed; which of the
        // functions has which of the rates is random.
        let middle = |function| (f64::from(function) + 0.5) / f64::from(load.functions);
        let mut rates: Vec<f64> = (0..load.functions).map(|n| (SIGMA * normal(middle(n))).exp()).collect();
        rng.shuffle(&mut rates);
        let mut sum = 0.0;
        for rate in &mut rates {
            sum += *rate;
            *rate = sum;
        }
        let tenants = load.tenants.max(1);
        let wide = |most: u32| most.saturating_sub(1).to_string().len();
        let (tenants_wide, functions_wide) = (wide(tenants), wide(load.functions));
        let name = |function: u32| {
            let tenant = format!("tenant-{:0tenants_wide$}", function % tenants);
            (tenant.into(), format!("model-{function:0functions_wide$}").into())
        };
        let functions = (0..load.functions).map(name).collect();
        let end = nanos(load.duration);
        Self { rng, functions, rates, load: load.clone(), end, now: 0, bursting: (0, 0) }
    }

    /// Goes on to the next event. Returns the function that it is of; none if it is the flood's.
    fn advance(&mut self) -> Option<Option<usize>> {
        let flood = self.load.flood.as_ref().map_or(0.0, |flood| flood.rate);
        let bursts =
            if self.functions.is_empty() { 0.0 } else { self.load.rate / f64::from(self.load.burst.max(1)) };
        let rate = flood + bursts;
        if rate.is_nan() || rate <= 0.0 {
            return None;
        }
        let gap = -(1.0 - self.rng.f64()).ln() / rate;
        self.now = self.now.saturating_add((gap * 1e9) as u64);
        if self.now >= self.end {
            return None;
        }
        if self.rng.f64() * rate < flood {
            return Some(None);
        }
        let at = self.rng.f64() * self.rates.last().copied().unwrap_or(0.0);
        Some(Some(self.rates.partition_point(|sum| *sum <= at).min(self.functions.len().saturating_sub(1))))
    }

    fn class(&mut self) -> Class {
        let (critical, batch) = (self.load.critical, self.load.batch);
        match self.rng.u8(0..100) {
            percent if percent < critical => Class::Critical,
            percent if percent < critical.saturating_add(batch) => Class::Batch,
            _ => Class::Standard,
        }
    }
}

impl Iterator for Calls {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        if self.bursting.1 == 0 {
            match self.advance()? {
                Some(function) => self.bursting = (function, geometric(&mut self.rng, self.load.burst)),
                None => {
                    let Flood { tenant, model, .. } = self.load.flood.clone()?;
                    return Some(Arrival { at: self.now, tenant, model, rows: 1, class: Class::Standard });
                }
            }
        }
        let (function, left) = self.bursting;
        self.bursting.1 = left.saturating_sub(1);
        let class = self.class();
        let (tenant, model) = self.functions.get(function).cloned()?;
        Some(Arrival { at: self.now, tenant, model, rows: 1, class })
    }
}

/// What a standard normal number is below with this probability, to three digits (Abramowitz and Stegun, Handbook of
/// Mathematical Functions, 26.2.23).
fn normal(below: f64) -> f64 {
    let tail = below.min(1.0 - below);
    let t = (-2.0 * tail.ln()).sqrt();
    let over = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let under = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    let distance = t - over / under;
    if below < 0.5 { -distance } else { distance }
}

/// A number of at least one, `mean` on average: how often it takes until something of that chance happens.
fn geometric(rng: &mut Rng, mean: u32) -> u32 {
    let mean = mean.max(1);
    let mut count = 1;
    while rng.u32(0..mean) > 0 {
        count += 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn load() -> Load {
        let flood = Flood { tenant: "flood".into(), model: "large".into(), rate: 50.0 };
        Load { critical: 10, batch: 20, flood: Some(flood), ..Load::default() }
    }

    #[test]
    fn calls_are_sorted_and_come_at_about_the_asked_rate() {
        for burst in [1, 8] {
            let load = Load { burst, ..load() };
            let calls: Vec<Arrival> = generate(&load, 7).collect();
            assert!(calls.is_sorted_by_key(|call| call.at));
            assert!(calls.iter().all(|call| call.at < nanos(load.duration) && call.rows == 1));
            let (flood, others): (Vec<_>, Vec<_>) = calls.iter().partition(|call| &*call.tenant == "flood");
            let near = |count: usize, expected: usize| count.abs_diff(expected) < expected / 20;
            assert!(near(flood.len(), 30_000), "{}", flood.len());
            assert!(near(others.len(), 120_000), "{}", others.len());
            let class = |class| others.iter().filter(|call| call.class == class).count();
            assert!(near(class(Class::Critical), others.len() / 10));
            assert!(near(class(Class::Batch), others.len() / 5));
            let moments: std::collections::BTreeSet<u64> = others.iter().map(|call| call.at).collect();
            assert!(near(moments.len(), others.len() / burst as usize));
        }
    }

    #[test]
    fn few_functions_have_most_calls_and_most_have_hardly_any() {
        for seed in 0..20 {
            let load = Load { flood: None, ..load() };
            let mut calls: HashMap<Arc<str>, u64> = HashMap::new();
            for call in generate(&load, seed) {
                *calls.entry(call.model).or_default() += 1;
            }
            let all: u64 = calls.values().sum();
            let mut counts: Vec<u64> = calls.into_values().collect();
            counts.sort_unstable_by(|one, other| other.cmp(one));
            let top: u64 = counts.iter().take(10).sum();
            assert!(top > all / 2, "the top 1% have {top} of {all}");
            let least = 1000 - counts.len();
            assert!(least > 300, "{least} of 1000 functions have no call in ten minutes");
            let a_minute = counts.iter().filter(|count| **count >= 10).count();
            assert!(a_minute < 500, "{a_minute} of 1000 functions have a call per minute");
        }
    }

    #[test]
    fn rates_range_over_eight_orders_of_magnitude() {
        let of = |below| (SIGMA * normal(below)).exp();
        let (lowest, highest) = (of(0.00135), of(0.99865));
        assert!((1e8 * 0.98..1e8 * 1.02).contains(&(highest / lowest)), "{}", highest / lowest);
        assert!((of(0.5) - 1.0).abs() < 0.01);
    }

    #[test]
    fn a_seed_gives_one_trace_and_another_seed_another() {
        let take = |seed| generate(&load(), seed).take(1000).collect::<Vec<_>>();
        assert_eq!(take(1), take(1));
        assert_ne!(take(1), take(2));
    }

    #[test]
    fn a_load_without_calls_ends() {
        let none = Load { functions: 0, ..Load::default() };
        assert_eq!(generate(&none, 1).count(), 0);
        assert_eq!(generate(&Load { rate: f64::NAN, ..Load::default() }, 1).count(), 0);
        assert_eq!(
            generate(&Load { rate: 0.0, ..load() }, 1).filter(|call| &*call.tenant != "flood").count(),
            0
        );
    }
}
