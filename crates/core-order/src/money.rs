//! An amount of money in minor units. No arithmetic and no conversion: this domain only carries amounts.

use std::fmt;
use std::str::FromStr;

/// An amount and its currency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Money {
    /// In minor units of the currency (cents for EUR).
    pub minor_units: i64,
    /// The currency.
    pub currency: Currency,
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} (minor units)", self.minor_units, self.currency)
    }
}

/// A currency code of ISO 4217: three capital letters. Whether a code exists is the provider's knowledge.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Currency([u8; 3]);

impl Currency {
    /// The euro.
    pub const EUR: Self = Self(*b"EUR");

    /// The code.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("a currency is three ASCII letters")
    }
}

impl FromStr for Currency {
    type Err = InvalidCurrency;

    fn from_str(text: &str) -> Result<Self, InvalidCurrency> {
        match <[u8; 3]>::try_from(text.as_bytes()) {
            Ok(code) if code.iter().all(u8::is_ascii_uppercase) => Ok(Self(code)),
            _ => Err(InvalidCurrency),
        }
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Currency({self})")
    }
}

/// Not a currency code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not an ISO 4217 currency code (three capital letters)")]
pub struct InvalidCurrency;
