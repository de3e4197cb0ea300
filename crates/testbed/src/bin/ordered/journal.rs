//! What is written down: `performed`, outside of the units and at every try, and `journal`, within them and once.

use async_trait::async_trait;
use core_delivery::{
    claim::Claimed,
    event::Event,
    ports::{Effect, EventHandler, HandlerError, StoreError, error_chain},
};
use infra_postgres::{PgUnit, store_error};
use sqlx::PgPool;

use crate::steps::Step;

const PERFORM: &str = "insert into performed (key, number) values ($1, $2)";
/// A row a step, in the order in which the kernel hands them over: `place` is given in that order.
const RECORD: &str = "insert into journal (key, number) \
                      select key, number from unnest($1::text[], $2::int4[]) with ordinality as s (key, number, turn) \
                      order by turn";

/// The handler.
pub(crate) struct Journal {
    performed: PgPool,
}

impl Journal {
    pub(crate) fn new(performed: PgPool) -> Self {
        Self { performed }
    }
}

#[async_trait]
impl EventHandler<Step, PgUnit> for Journal {
    type Receipt = ();

    /// The effect outside of the unit. Without an answer it may have happened, as with any other outside world.
    async fn perform(&self, step: &Claimed<Step>) -> Result<(), HandlerError> {
        let step = step.event();
        let written = sqlx::query(PERFORM).bind(step.key()).bind(step.number).execute(&self.performed).await;
        match written {
            Ok(_) => Ok(()),
            Err(error) => Err(HandlerError::Halt { reason: error_chain(&error), effect: Effect::Unknown }),
        }
    }

    async fn record(&self, unit: &mut PgUnit, done: &[(Claimed<Step>, ())]) -> Result<(), StoreError> {
        let keys: Vec<&str> = done.iter().map(|(step, ())| step.event().key()).collect();
        let numbers: Vec<i32> = done.iter().map(|(step, ())| step.event().number).collect();
        let inserted = sqlx::query(RECORD).bind(keys).bind(numbers).execute(unit.connection()).await;
        inserted.map(drop).map_err(|error| store_error("insert into journal", error))
    }
}
