//! Amounts of money and quantities that are priced: exact decimals. They are summed and multiplied without an error; where
//! one is rounded it is said ([`Amount::rounded`]).

use std::borrow::Cow;
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Mul, Sub};
use std::str::FromStr;

use bigdecimal::num_bigint::BigInt;
use bigdecimal::{BigDecimal, RoundingMode, Zero};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// An exact decimal. Written as a string of digits, without an exponent and without zeros at its end.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Amount(BigDecimal);

impl Amount {
    /// Digits before and after the point that one may be written with: more than any price needs.
    const WHOLE: usize = 15;
    const PARTS: usize = 18;

    const PATTERN: &str = "^[0-9]{1,15}([.][0-9]{1,18})?$";

    /// `digits` × 10^-`scale`.
    pub fn new(digits: impl Into<BigInt>, scale: i64) -> Self {
        Self(BigDecimal::new(digits.into(), scale))
    }

    pub fn is_zero(&self) -> bool {
        self.0.is_zero()
    }

    /// With so many digits after the point; from the middle between two to the even one.
    pub fn rounded(&self, digits: u32) -> Self {
        Self(self.0.with_scale_round(digits.into(), RoundingMode::HalfEven))
    }

    /// As people write money: with so many digits after the point, to which it is rounded.
    pub fn with_digits(&self, digits: u32) -> String {
        self.rounded(digits).0.to_plain_string()
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.normalized().to_plain_string())
    }
}

impl FromStr for Amount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (whole, parts) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str, most: usize| {
            (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
        };
        let number = digits(whole, Self::WHOLE) && digits(parts, Self::PARTS);
        number.then(|| text.parse().ok()).flatten().map(Self).ok_or_else(|| {
            let shown: String = text.chars().take(60).collect();
            format!(
                "`{}` is not an amount: write digits, such as \"0.000025\", up to {} before the point and {} after it",
                shown.escape_default(),
                Self::WHOLE,
                Self::PARTS
            )
        })
    }
}

impl Serialize for Amount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// From a string, and from nothing else: a number of JSON would be one of floating point to many who read it.
impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<str>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for Amount {
    fn schema_name() -> Cow<'static, str> {
        "Amount".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "An exact decimal, as a string.",
            "type": "string",
            "pattern": Self::PATTERN,
            "examples": ["0.000025"],
        })
    }
}

impl Add<&Self> for Amount {
    type Output = Self;

    fn add(self, other: &Self) -> Self {
        Self(self.0 + &other.0)
    }
}

impl AddAssign<&Self> for Amount {
    fn add_assign(&mut self, other: &Self) {
        self.0 += &other.0;
    }
}

impl Sub<&Amount> for &Amount {
    type Output = Amount;

    fn sub(self, other: &Amount) -> Amount {
        Amount(&self.0 - &other.0)
    }
}

impl Mul<&Amount> for &Amount {
    type Output = Amount;

    fn mul(self, other: &Amount) -> Amount {
        Amount(&self.0 * &other.0)
    }
}

impl<'a> Sum<&'a Self> for Amount {
    fn sum<I: Iterator<Item = &'a Self>>(amounts: I) -> Self {
        amounts.fold(Self::default(), Add::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(text: &str) -> Amount {
        text.parse().unwrap()
    }

    #[test]
    fn amounts_are_written_as_digits() {
        for (text, shown) in [
            ("0", "0"),
            ("0.00", "0"),
            ("100", "100"),
            ("0100.50", "100.5"),
            ("0.000000000000000001", "0.000000000000000001"),
            ("999999999999999.999999999999999999", "999999999999999.999999999999999999"),
        ] {
            assert_eq!(amount(text).to_string(), shown);
            let json = format!("\"{shown}\"");
            assert_eq!(serde_json::to_string(&amount(text)).unwrap(), json);
            assert_eq!(serde_json::from_str::<Amount>(&json).unwrap(), amount(text));
        }
        for wrong in
            ["", ".", "1.", ".5", "-1", "+1", "1e3", "1_000", " 1", "1,5", "NaN", "١", &"1".repeat(16)]
        {
            let refused = wrong.parse::<Amount>().unwrap_err();
            assert!(refused.contains("is not an amount"), "{wrong}");
        }
        assert!("0.0000000000000000001".parse::<Amount>().is_err(), "19 digits after the point");
        assert!(serde_json::from_str::<Amount>("1").is_err(), "a number of JSON is none");
    }

    #[test]
    fn nothing_is_lost_and_the_middle_goes_to_the_even_one() {
        let tiny = amount("0.000000000000000001");
        let large = amount("999999999999999");
        assert_eq!((&(large.clone() + &tiny) - &large), tiny);
        assert_eq!((&tiny * &tiny).to_string(), format!("0.{}1", "0".repeat(35)));
        for (exact, rounded) in [
            ("0.005", "0.00"),
            ("0.015", "0.02"),
            ("0.025", "0.02"),
            ("0.0250000000000000001", "0.03"),
            ("2.675", "2.68"),
            ("12", "12.00"),
        ] {
            let exact: BigDecimal = exact.parse().unwrap();
            assert_eq!(Amount(exact.clone()).with_digits(2), rounded, "{exact}");
        }
        assert_eq!(amount("2.5").with_digits(0), "2");
        assert_eq!(amount("3.5").with_digits(0), "4");
    }
}
