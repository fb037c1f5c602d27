//! Outputs of network tools, of this machine and of older versions.

use mitra_model::SeriesSet;
use mitra_parse::text::Imported;
use proptest::prelude::*;

use crate::support::{bytes, damaged, import, is_clean, is_empty, one, output, survive, tries};

/// An output that is read without a line left over, whatever its file is called.
#[track_caller]
fn clean(content: impl AsRef<[u8]>) -> Imported {
    let read = import("x", content);
    is_clean(&read);
    read
}

#[track_caller]
fn none(set: &SeriesSet, metric: &str, row: &str) {
    assert!(set.total(metric, row).or_else(|| set.get(metric, row)).is_none(), "{metric} of {row}");
}

#[test]
fn devices_of_ip() {
    let read = clean(bytes(output("net/ip-s-link.txt")));
    assert_eq!(one(&read.set, "nic.rx_bytes", "eth0"), (486_359_956.0, 22));
    assert_eq!(one(&read.set, "nic.tx_packets", "eth0"), (9_529.0, 24));
    assert_eq!(one(&read.set, "nic.rx_ring_drops", "lo").0, 0.0);
    none(&read.set, "nic.rx_fifo", "eth0");
    let read = clean(bytes(output("net/ip-s-s-link.txt")));
    assert_eq!(one(&read.set, "nic.rx_fifo", "eth0").0, 0.0);
    assert_eq!(one(&read.set, "nic.rx_frame", "eth0").0, 0.0);
    assert_eq!(one(&read.set, "nic.tx_carrier", "eth0").0, 0.0);
    let old = b"2: bond0.5@bond0: <BROADCAST,UP> mtu 1500 qdisc noqueue state UP \n    link/ether 0a:00:00:00:00:01 brd ff:ff:ff:ff:ff:ff\n\
        \x20   RX: bytes  packets  errors  dropped overrun mcast   \n    500 40 3 20 1 6 \n    RX errors: length  crc     frame   fifo    missed\n               1 1 0 9 7 \n\
        \x20   TX: bytes  packets  errors  dropped carrier collsns \n    700 50 1 2 3 4 \n";
    let read = clean(old);
    assert_eq!(one(&read.set, "nic.rx_drop", "bond0.5"), (27.0, 4));
    assert_eq!(one(&read.set, "nic.rx_ring_drops", "bond0.5"), (7.0, 6));
    assert_eq!(one(&read.set, "nic.rx_fifo", "bond0.5"), (9.0, 6));
    assert_eq!(one(&read.set, "nic.rx_frame", "bond0.5").0, 3.0);
    assert_eq!(one(&read.set, "nic.tx_drop", "bond0.5"), (2.0, 8));
    none(&read.set, "nic.tx_carrier", "bond0.5");
    let damaged = import("x", b"2: eth0: <UP> mtu 1500\n    RX: bytes packets errors dropped\n    500 40 x 2\n    TX: bytes packets\n    5 6\n");
    assert_eq!(damaged.files[0].first_unread.as_ref().map(|(line, _)| *line), Some(3));
    none(&damaged.set, "nic.rx_bytes", "eth0");
    assert_eq!(one(&damaged.set, "nic.tx_bytes", "eth0"), (5.0, 5));
}

#[test]
fn devices_of_netstat() {
    let read = clean(bytes(output("net/netstat-i.txt")));
    assert_eq!(read.files[0].formats, ["netstat -i"]);
    assert_eq!(one(&read.set, "nic.rx_packets", "eth0"), (5_888.0, 3));
    assert_eq!(one(&read.set, "nic.tx_packets", "lo"), (68_990.0, 4));
    assert_eq!(one(&read.set, "nic.tx_fifo", "lo").0, 0.0);
    let old = b"Iface   MTU Met   RX-OK RX-ERR RX-DRP RX-OVR    TX-OK TX-ERR TX-DRP TX-OVR Flg\n\
        eth0   1500 0  10 1 2 3  20 4 5 6 BMRU\neth0:1 1500 0       - no statistics available -  BMRU\n";
    let read = clean(old);
    assert_eq!(one(&read.set, "nic.rx_drop", "eth0"), (2.0, 2));
    assert_eq!(one(&read.set, "nic.tx_fifo", "eth0"), (6.0, 2));
    let damaged = import(
        "x",
        b"Iface MTU RX-OK RX-ERR RX-DRP TX-OK Flg\neth0 1500 1 2 x 4 BMRU\neth1 1500 1 2 3 4 BMRU\n",
    );
    assert_eq!(damaged.files[0].first_unread.as_ref().map(|(line, _)| *line), Some(2));
    assert_eq!(one(&damaged.set, "nic.tx_packets", "eth1"), (4.0, 3));
    let other = import("x", b"Iface MTU RX-OK Flg\neth0 1500 1 BMRU\n");
    assert!(is_empty(&other));
}

#[test]
fn devices_of_ifconfig() {
    for text in [bytes(output("net/ifconfig.txt")), bytes(output("net/ifconfig.de.txt"))] {
        let read = clean(text);
        assert_eq!(one(&read.set, "nic.rx_bytes", "eth0"), (486_359_956.0, 6));
        assert_eq!(one(&read.set, "nic.tx_colls", "lo").0, 0.0);
    }
    let old = b"eth0:1    Link encap:Ethernet  HWaddr 0a:00:00:00:00:01  \n          UP BROADCAST RUNNING  MTU:1500  Metric:1\n\
        \x20         RX packets:40 errors:3 dropped:27 overruns:9 frame:2\n          TX packets:50 errors:1 dropped:2 overruns:5 carrier:6\n\
        \x20         collisions:7 txqueuelen:1000 \n          RX bytes:500 (500.0 b)  TX bytes:700 (700.0 b)\n          Interrupt:17 \n\n\
        lo        Link encap:Local Loopback  \n          RX packets:1 errors:0 dropped:0 overruns:0 frame:0\n";
    let read = clean(old);
    assert_eq!(one(&read.set, "nic.rx_drop", "eth0:1"), (27.0, 3));
    assert_eq!(one(&read.set, "nic.rx_fifo", "eth0:1"), (9.0, 3));
    assert_eq!(one(&read.set, "nic.tx_carrier", "eth0:1"), (6.0, 4));
    assert_eq!(one(&read.set, "nic.tx_colls", "eth0:1"), (7.0, 5));
    assert_eq!(one(&read.set, "nic.rx_bytes", "eth0:1"), (500.0, 6));
    assert_eq!(one(&read.set, "nic.tx_bytes", "eth0:1"), (700.0, 6));
    assert_eq!(one(&read.set, "nic.rx_packets", "lo"), (1.0, 10));
}

#[test]
fn ring_drops_of_drivers() {
    let read = import("ethtool-S.txt", bytes(output("net/ethtool-S.txt")));
    assert_eq!((is_empty(&read), read.files[0].notes.len()), (true, 1));
    let text = b"# ethtool -S ens5\nNIC statistics:\n     rx_packets: 900\n     rx_missed_errors: 12\n     rx_fifo_errors: 12\n     rx0_drops: 3\n     rx_queue_1_drops: 4\n     tx_errors: 5\n";
    let read = import("x", text);
    assert_eq!(one(&read.set, "nic.rx_ring_drops", "ens5"), (12.0, 4));
    let read = import(
        "ethtool-eno1.txt",
        b"NIC statistics:\n     rx0_drops: 3\n     rx1_drops: 4\n     rx1_xdp_drops: 4\n",
    );
    assert_eq!(one(&read.set, "nic.rx_ring_drops", "eno1"), (7.0, 2));
}

#[test]
fn rings_of_devices() {
    let text = b"Ring parameters for eth0:\nPre-set maximums:\nRX:\t\t4096\nRX Mini:\tn/a\nRX Jumbo:\tn/a\nTX:\t\t4096\nTX push buff len:\tn/a\n\
        Current hardware settings:\nRX:\t\t256\nRX Mini:\tn/a\nRX Buf Len:\t\tn/a\nCQE Size:\t\tn/a\nTX Push:\toff\nTCP data split:\tn/a\nTX:\t\t256\n";
    let read = clean(text);
    assert_eq!(one(&read.set, "nic.rx_ring_max", "eth0"), (4096.0, 3));
    assert_eq!(one(&read.set, "nic.rx_ring", "eth0"), (256.0, 9));
    let without = "Ring parameters for eth1:\nPre-set maximums:\nRX:\t\tn/a\nTX:\t\tn/a\nCurrent hardware settings:\nRX:\t\t0\nTX:\t\t0\n";
    assert!(is_empty(&import("x", without)));
    assert!(is_empty(&import("x", "Ring parameters for the king:\nmany\n")));
}

#[test]
fn sentences() {
    for text in [
        bytes(output("net/netstat-s.txt")),
        bytes(output("net/netstat-s.de.txt")),
        bytes(output("net/netstat-s.fr.txt")),
    ] {
        let read = clean(text);
        assert_eq!(one(&read.set, "ip.InReceives", ""), (999_812.0, 3));
        assert_eq!(one(&read.set, "icmp.InDestUnreachs", "").0, 2.0);
        assert_eq!(one(&read.set, "tcp.RetransSegs", "").0, 19.0);
        assert_eq!(one(&read.set, "tcpext.ListenOverflows", "").0, 20.0);
        assert_eq!(one(&read.set, "tcpext.ListenDrops", "").0, 20.0);
        assert_eq!(one(&read.set, "tcpext.DelayedACKLost", "").0, 6.0);
        assert_eq!(one(&read.set, "tcpext.TCPTimeouts", "").0, 19.0);
        assert_eq!(one(&read.set, "ipext.OutOctets", "").0, 87_574_603.0);
        assert_eq!(one(&read.set, "tcp.CurrEstab", "").0, 0.0);
    }
    let old = b"Tcp:\n    12 active connections openings\n    7 segments send out\n    5 segments retransmited\n    3 bad segments received.\n\
        TcpExt:\n    9 times the listen queue of a socket overflowed\n    8 SYNs to LISTEN sockets ignored\n    TCP ran low on memory 2 times\n\
        \x20   44 packets pruned from receive queue because of socket buffer overrun\n    a new thing happened 3 times\n";
    let read = clean(old);
    assert_eq!(one(&read.set, "tcp.ActiveOpens", ""), (12.0, 2));
    assert_eq!(one(&read.set, "tcp.RetransSegs", ""), (5.0, 4));
    assert_eq!(one(&read.set, "tcp.InErrs", ""), (3.0, 5));
    assert_eq!(one(&read.set, "tcpext.ListenDrops", ""), (8.0, 8));
    assert_eq!(one(&read.set, "tcpext.TCPMemoryPressures", ""), (2.0, 9));
    assert_eq!(one(&read.set, "tcpext.PruneCalled", ""), (44.0, 10));
}

#[test]
fn list_of_nstat() {
    let read = clean(bytes(output("net/nstat-az.txt")));
    assert_eq!(one(&read.set, "ip.InReceives", "").0, 999_812.0);
    assert_eq!(one(&read.set, "tcpext.TCPAbortOnMemory", "").0, 0.0);
    assert!(read.set.total("tcpext.ListenOverflows", "").is_some());
    let read = clean(b"TcpRetransSegs                  19                 0.0\n");
    assert_eq!(one(&read.set, "tcp.RetransSegs", ""), (19.0, 1));
    let read = import("x", b"$ nstat\n#kernel\nTcpRetransSegs                  19                 0.0\n");
    assert_eq!((is_empty(&read), read.files[0].notes.len()), (true, 1));
    let twice = b"@1473504812\n#kernel\nTcpRetransSegs 10 0.0\n@1473504822\n#kernel\nTcpRetransSegs 30 0.0\n";
    let read = clean(twice);
    assert_eq!(read.set.get("tcp.RetransSegs", "").unwrap().values[1], 2.0);
}

#[test]
fn sockets_by_state() {
    let read = clean(bytes(output("net/ss-s.txt")));
    assert_eq!(one(&read.set, "sock.used", ""), (17.0, 1));
    assert_eq!(one(&read.set, "sock.tcp_established", ""), (0.0, 2));
    assert_eq!(one(&read.set, "sock.tcp_tw", ""), (1.0, 2));
    let old = b"Total: 312 (kernel 340)\nTCP:   90 (estab 12, closed 70, orphaned 3, synrecv 1, timewait 68/0), ports 44\n\n\
        Transport Total     IP        IPv6\n*\t  340       -         -        \nRAW\t  0         0         0        \n";
    let read = clean(old);
    assert_eq!(one(&read.set, "sock.tcp_orphan", ""), (3.0, 2));
    assert_eq!(one(&read.set, "sock.tcp_tw", ""), (68.0, 2));
    assert_eq!(one(&read.set, "sock.tcp_syn_recv", ""), (1.0, 2));
    let read = clean(bytes(output("net/ss-tan.txt")));
    assert_eq!(one(&read.set, "sock.tcp_listen", ""), (1.0, 1));
    assert_eq!(one(&read.set, "sock.tcp_tw", ""), (1.0, 1));
    assert_eq!(one(&read.set, "sock.listen_backlog", ""), (128.0, 2));
    assert_eq!(one(&read.set, "sock.listen_overfull", ""), (0.0, 2));
    let tin = b"State      Recv-Q Send-Q Local Address:Port  Peer Address:Port\nLISTEN     129    128    *:80  *:*\n\t cubic cwnd:10\n\
        ESTAB      0      2920   10.0.0.1:22  10.0.0.2:5123\n\t cubic wscale:7,7 rto:204 rtt:1.5/0.7 cwnd:10 retrans:0/5\n\
        CLOSE-WAIT 1      0      [::1]:99  [::1]:5124 users:((\"x\",pid=1,fd=3))\n\t cubic rto:204 retrans:1/2\n";
    let read = clean(tin);
    assert_eq!(one(&read.set, "sock.listen_queue_max", ""), (129.0, 2));
    assert_eq!(one(&read.set, "sock.listen_backlog", ""), (128.0, 2));
    assert_eq!(one(&read.set, "sock.listen_overfull", ""), (1.0, 2));
    assert_eq!(one(&read.set, "sock.open_retrans", ""), (7.0, 1));
    assert_eq!(one(&read.set, "sock.send_queue_bytes", ""), (2920.0, 1));
    assert_eq!(one(&read.set, "sock.tcp_close_wait", ""), (1.0, 1));
    let netstat = b"Active Internet connections (servers and established)\nProto Recv-Q Send-Q Local Address           Foreign Address         State      \n\
        tcp        6      0 0.0.0.0:80              0.0.0.0:*               LISTEN     \ntcp6       0     30 ::1:22                  ::1:9                   ESTABLISHED 77/sshd\n\
        udp        0      0 0.0.0.0:68              0.0.0.0:*                          \n";
    let read = clean(netstat);
    assert_eq!(one(&read.set, "sock.listen_queue_max", ""), (6.0, 3));
    none(&read.set, "sock.listen_backlog", "");
    assert_eq!(one(&read.set, "sock.send_queue_bytes", ""), (30.0, 1));
}

#[test]
fn queues_and_tracked_connections() {
    let read = clean(bytes(output("net/tc-s-qdisc.txt")));
    assert_eq!(one(&read.set, "nic.qdisc_dropped", "eth0"), (0.0, 5));
    assert_eq!(one(&read.set, "nic.qdisc_requeues", "eth0"), (1.0, 5));
    let mq = b"qdisc mq 0: dev eth1 root \n Sent 9 bytes 8 pkt (dropped 7, overlimits 6 requeues 5) \n backlog 12Kb 3p requeues 5 \n\
        qdisc fq_codel 0: dev eth1 parent :1 limit 10240p\n Sent 9 bytes 8 pkt (dropped 7, overlimits 0 requeues 0) \n backlog 0b 0p requeues 0\n  maxpacket 0 drop_overlimit 0\n";
    let read = clean(mq);
    assert_eq!(one(&read.set, "nic.qdisc_dropped", "eth1"), (7.0, 2));
    assert_eq!(one(&read.set, "nic.qdisc_overlimits", "eth1"), (6.0, 2));
    assert_eq!(one(&read.set, "nic.qdisc_backlog_bytes", "eth1"), (12_288.0, 3));
    assert_eq!(one(&read.set, "nic.qdisc_backlog_packets", "eth1"), (3.0, 3));
    let read = clean(bytes(output("net/conntrack-S.txt")));
    assert_eq!(one(&read.set, "conntrack.drop", ""), (0.0, 1));
    let old = b"cpu=0   \tsearched=5 found=2 new=1 invalid=3 ignore=0 delete=0 delete_list=0 insert=0 insert_failed=4 drop=10 early_drop=2 search_restart=1 \n\
        cpu=1   \tsearched=5 found=2 new=1 invalid=3 ignore=0 delete=0 delete_list=0 insert=0 insert_failed=4 drop=20 early_drop=2 search_restart=1 \n";
    let read = clean(old);
    assert_eq!(one(&read.set, "conntrack.drop", ""), (30.0, 1));
    assert_eq!(one(&read.set, "conntrack.insert_failed", ""), (8.0, 1));
    let read = clean(b"$ conntrack -C\n262144\n");
    assert_eq!(one(&read.set, "sysctl.net.netfilter.nf_conntrack_count", ""), (262_144.0, 2));
}

#[test]
fn near_misses_give_no_numbers() {
    for text in [
        "2: eth0 <UP> mtu 1500\n    RX: bytes packets\n    5 6",
        "    RX: bytes packets\n    5 6",
        "eth0: flag=5\n        RX packets 5  bytes 6",
        "NIC statistic:\n     rx_missed_errors: 12",
        "Tcp\n    5 segments retransmitted",
        "5 segments retransmitted",
        "TcpRetransSegs 19",
        "TcpRetransSegs nineteen 0.0",
        "Total: 5\nUDP: 3",
        "State Recv-Q\nLISTEN 5 6 a:b c:d",
        "LISTEN 5 6 a:b c:d",
        "qdisc mq dev eth1\n Sent 9 bytes 8 pkt (dropped 7, overlimits 6 requeues 5)",
        "cpu=0 found=1",
        "cpu=0 found=1 invalid=2 insert=x drop=4 early_drop=5 search_restart=6 error=7",
    ] {
        let read = import("x", format!("a line\n{text}\n"));
        assert!(is_empty(&read), "{text}");
        assert!(read.files[0].unread >= 2, "{text}");
    }
}

const WHOLE: &[&str] = &[
    "ip-s-s-link.txt",
    "ifconfig.txt",
    "ethtool-S.txt",
    "netstat-i.txt",
    "netstat-s.txt",
    "ss-s.txt",
    "ss-tan.txt",
    "tc-s-qdisc.txt",
    "conntrack-S.txt",
];

proptest! {
    #![proptest_config(tries(600))]

    #[test]
    fn changed_outputs_are_survived(content in damaged(WHOLE.iter().map(|name| bytes(output(format!("net/{name}")))).collect())) {
        survive("x", content);
    }
}
