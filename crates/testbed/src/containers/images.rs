//! Which images the containers are made of; it pulls none.

use std::env;

/// The images of one run, as `docker pull` takes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Images {
    /// A Kafka with the paths and variables of the public image.
    pub kafka: String,
    /// A PostgreSQL with the variables of the public image.
    pub postgres: String,
}

impl Images {
    /// `TEST_KAFKA_IMAGE` and `TEST_POSTGRES_IMAGE`, else the public ones.
    #[must_use]
    pub fn from_env() -> Self {
        Self::from_variables(|name| env::var(name).ok())
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Self {
        let chosen =
            |name, public: &str| variable(name).filter(|image| !image.is_empty()).unwrap_or_else(|| public.to_owned());
        Self {
            kafka: chosen("TEST_KAFKA_IMAGE", "apache/kafka:4.1.1"),
            postgres: chosen("TEST_POSTGRES_IMAGE", "postgres:17"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_public_images_are_taken_unless_another_is_named() {
        let named = Images::from_variables(|name| match name {
            "TEST_KAFKA_IMAGE" => Some("here/kafka:1".to_owned()),
            _ => Some(String::new()),
        });
        assert_eq!(named, Images { kafka: "here/kafka:1".to_owned(), postgres: "postgres:17".to_owned() });
    }
}
