//! Numbers as JSON Schema compares them: `1` and `1.0` are equal.

use std::cmp::Ordering;

use serde_json::Number;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Num {
    Integer(i128),
    /// Not an integer, or a very large one.
    Float(f64),
}

impl Num {
    #[expect(clippy::cast_possible_truncation, reason = "it is an integer, and small enough")]
    pub(crate) fn of(number: &Number) -> Self {
        const MAX: f64 = 1e38;
        if let Some(integer) = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from)) {
            return Self::Integer(integer);
        }
        match number.as_f64().unwrap_or(f64::NAN) {
            float if float.fract() == 0.0 && float.abs() < MAX => Self::Integer(float as i128),
            float => Self::Float(float),
        }
    }

    pub(crate) fn is_integer(self) -> bool {
        match self {
            Self::Integer(_) => true,
            Self::Float(float) => float.fract() == 0.0,
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "a cast takes the nearest integer that there is")]
    pub(crate) fn compare(self, other: Self) -> Ordering {
        match (self, other) {
            (Self::Integer(a), Self::Integer(b)) => a.cmp(&b),
            (Self::Float(a), Self::Float(b)) => a.total_cmp(&b),
            // A `Float` never equals an `Integer` here: it lies between two integers, above its floor.
            (Self::Integer(a), Self::Float(b)) => a.cmp(&(b.floor() as i128)).then(Ordering::Less),
            (Self::Float(_), Self::Integer(_)) => other.compare(self).reverse(),
        }
    }
}

/// Exact in decimal, as the digits are written: 0.3 is a multiple of 0.1.
pub(crate) fn is_multiple(number: &Number, divisor: &Number) -> bool {
    let (Some((digits, exponent)), Some((divisor, divisor_exponent))) = (decimal(number), decimal(divisor))
    else {
        return false;
    };
    let tens = exponent - divisor_exponent;
    match (tens..0).try_fold(divisor, |divisor, _| divisor.checked_mul(10)) {
        // The divisor is larger than the digits, so it only divides zero.
        None => digits == 0,
        Some(divisor) => (0..tens).fold(digits % divisor, |rest, _| rest * 10 % divisor) == 0,
    }
}

/// The digits, and the power of ten to multiply them with.
fn decimal(number: &Number) -> Option<(u128, i32)> {
    if let Some(integer) = number.as_u64().or_else(|| number.as_i64().map(i64::unsigned_abs)) {
        return Some((integer.into(), 0));
    }
    let text = format!("{:e}", number.as_f64()?.abs());
    let (digits, exponent) = text.split_once('e')?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let exponent = exponent.parse::<i32>().ok()? - i32::try_from(fraction.len()).ok()?;
    Some((format!("{whole}{fraction}").parse().ok()?, exponent))
}
