//! An order as the producer knows it, and the ids of orders and customers.

use std::fmt;
use std::str::FromStr;

use crate::Money;

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(String);

        impl $name {
            /// The id.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;

            fn try_from(text: String) -> Result<Self, InvalidId> {
                check_id(&text).map(|()| Self(text))
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                text.to_owned().try_into()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

text_id! {
    /// The id of an order: the record key of its events.
    OrderId
}
text_id! {
    /// The id of a customer.
    CustomerId
}

/// The longest id that is accepted, in bytes.
const MAX_ID_BYTES: usize = 255;

fn check_id(text: &str) -> Result<(), InvalidId> {
    if text.is_empty() {
        Err(InvalidId::Empty)
    } else if text.len() > MAX_ID_BYTES {
        Err(InvalidId::TooLong(text.len()))
    } else if text.chars().any(char::is_control) {
        Err(InvalidId::ControlCharacter)
    } else {
        Ok(())
    }
}

/// Why a text is no id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidId {
    /// No text at all.
    #[error("is empty")]
    Empty,
    /// Longer than any id we store.
    #[error("is {0} bytes long, at most 255 are accepted")]
    TooLong(usize),
    /// A NUL or another control character, which no database column of ours accepts.
    #[error("contains a control character")]
    ControlCharacter,
}

/// An order that has been confirmed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// The order.
    pub id: OrderId,
    /// Who pays.
    pub customer: CustomerId,
    /// How much, in minor units.
    pub total: Money,
}
