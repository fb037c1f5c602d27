//! What is seen of the network, against trouble that the tests make: on loopback and in namespaces of their own.
#![cfg(feature = "bpf")]

use mitra_collect::bpf::Probes;

#[test]
fn loads() {
    let probes = Probes::load();
    for (name, why) in probes.unavailable() {
        println!("{name}: {why}");
    }
    assert!(probes.net.is_some() && probes.resolvers.is_some());
    println!("{:?}", probes.drop_names.iter().flatten().take(9).collect::<Vec<_>>());
}
