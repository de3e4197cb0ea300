use core_delivery::claim::{ConsumerGroup, DedupKey};
use core_delivery::event::EventId;
use core_delivery::ports::{UnitOfWork, UnitOfWorkFactory};
use infra_postgres::*;
use std::time::{Duration, Instant};
#[tokio::main]
async fn main() {
    let url = std::env::args().nth(1).unwrap();
    let size: usize = std::env::args().nth(2).unwrap().parse().unwrap();
    let tasks: usize = std::env::args().nth(3).unwrap().parse().unwrap();
    let m = connect(&PgSettings::new(&url)).await.unwrap();
    let u = connect(&PgSettings::new(&url)).await.unwrap();
    migrate_delivery(&m, PartitionPlan::default(), EventId::generate().made_at()).await.unwrap();
    let store = PgStore::new(u, m.clone());
    for mode in ["claim+commit", "claim+release all+commit", "duplicates"] {
        let t = Instant::now();
        let hs: Vec<_> = (0..tasks).map(|_| { let store = store.clone(); tokio::spawn(async move {
            let mut n = 0; let mut lat = Duration::ZERO; let mut units = 0;
            let g = ConsumerGroup::new("billing-order-confirmed");
            let mut first: Option<Vec<DedupKey>> = None;
            while t.elapsed() < Duration::from_secs(6) {
                let mut keys: Vec<_> = (0..size).map(|_| DedupKey::new(EventId::generate(), g.clone())).collect(); keys.sort();
                if mode == "duplicates" { keys = first.get_or_insert(keys).clone(); }
                let s = Instant::now();
                let mut unit = store.begin().await.unwrap();
                unit.claim(&keys).await.unwrap();
                if mode.contains("release") { unit.release(&keys).await.unwrap(); }
                unit.commit().await.unwrap();
                lat += s.elapsed(); units += 1; n += size;
            }
            (n, lat / units)
        }) }).collect();
        let mut n = 0; let mut l = Duration::ZERO;
        for h in hs { let r = h.await.unwrap(); n += r.0; l = r.1; }
        println!("{mode}: size {size} tasks {tasks}: {:.0}/s, a unit {l:?}", n as f64 / t.elapsed().as_secs_f64());
    }
}
