//! What `doctor` looks at where the URL goes through brokers: their cluster file, and whether enough of them answer.

use std::time::Duration;

use sealcast::brokers::BrokerStatus;
use sealcast::code::{Class, Code};
use sealcast::config::Home;

use super::{Check, of_failure};
use crate::cluster::{Cluster, PIN_DIGITS};
use crate::commands::Env;
use crate::hint::Failure;
use crate::target::Target;
use crate::text::brokers as brokers_of;

/// A check of the cluster file, and of the brokers that it names.
pub(super) fn check(env: &Env<'_>, target: &Target) -> Vec<Check> {
    let cluster = match Cluster::of_url(&target.url) {
        Ok(Some(cluster)) => cluster,
        Ok(None) => return Vec::new(),
        Err(failure) => return vec![of_failure("cluster", &failure)],
    };
    let file = &cluster.file;
    let (name, id) = (&file.genesis.name, &hex::encode(file.cluster().0)[..PIN_DIGITS]);
    let found = format!(
        "{name}, {} of which {} may lie: {}",
        brokers_of(file.brokers()),
        file.faulty(),
        Home::shown(&cluster.path)
    );
    let of_file = match cluster.is_named() {
        true => Check::good("cluster", found),
        false => Check::hurts(
            "cluster",
            format!("{found}; the URL does not say which cluster it is"),
            format!("compare pin={id} with the brokers' operator, and add it to the URL"),
        ),
    };
    let faulty = file.faulty();
    let of_brokers = match look(env, cluster) {
        Ok(stands) => judged(&stands, faulty),
        Err(failure) => of_failure("brokers", &failure),
    };
    vec![of_file, of_brokers]
}

fn look(env: &Env<'_>, cluster: Cluster) -> Result<Vec<BrokerStatus>, Failure> {
    let brokers = Cluster { timeout: LOOK, ..cluster }.open(env)?;
    let stands = brokers.survey(LOOK).wait();
    brokers.close();
    Ok(stands?)
}

/// Of 3f + 1 brokers 2f + 1 must answer.
fn judged(stands: &[BrokerStatus], faulty: usize) -> Check {
    let heights = stands.iter().filter_map(|it| Some(it.said.as_ref().ok()?.height));
    let (here, needed) = (heights.clone().count(), 2 * faulty + 1);
    let all = brokers_of(stands.len());
    let silent: Vec<String> =
        stands.iter().filter_map(|it| Some(format!("broker {}: {}", it.broker, it.said.as_ref().err()?))).collect();
    let silent = silent.join("; ");
    if here < needed {
        let found = format!("{here} of {all} answer, and {needed} are needed ({silent})");
        let hint = "sealcast brokers up, or on each broker's machine: sealcast brokers run FOLDER";
        return Check { exit: Code::NoQuorum.exit(), ..Check::broken("brokers", Class::Unreachable, found, hint) };
    }
    if here < stands.len() {
        let hint = "sealcast brokers run FOLDER, on the machine of each that is missing; then: sealcast brokers status";
        return Check::hurts("brokers", format!("{here} of {all} answer ({silent})"), hint);
    }
    Check::good("brokers", format!("all {all} answer; the highest block is {}", heights.max().unwrap_or(0)))
}

/// How long silent brokers are waited for.
const LOOK: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use sealcast_broker::protocol::Status;

    use super::super::State;
    use super::*;

    #[test]
    fn two_thirds_of_the_brokers_must_answer() {
        let stand = |broker: u16, here: bool| {
            let said =
                if here { Ok(Status { height: 7, ..Status::default() }) } else { Err("connection refused".to_owned()) };
            BrokerStatus::new(broker, "127.0.0.1:7400".to_owned(), said)
        };
        let of = |here: u16| judged(&(0..4).map(|it| stand(it, it < here)).collect::<Vec<_>>(), 1);
        assert_eq!((of(4).state, of(4).exit), (State::Good, 0));
        assert!(of(4).found.contains("all 4 brokers answer; the highest block is 7"), "{}", of(4).found);
        assert_eq!((of(3).state, of(3).exit), (State::Hurts, 0));
        assert!(of(3).found.contains("broker 3: connection refused"), "{}", of(3).found);
        assert_eq!((of(2).state, of(2).exit), (State::Broken, 8));
    }
}
