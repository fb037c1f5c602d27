//! The connections of a run, and which of them a request takes. One thread: no borrow is held while something is awaited.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use hyper::client::conn::http2;
use mitra_http::rustls::ClientConfig;
use tokio::sync::Mutex;

use crate::body::Body;
use crate::targets::Origin;
use crate::wire::{Failure, Host, Wire};
use crate::{Error, Plan, Protocol};

/// Counts something as long as it lives.
struct Counted(Rc<Cell<usize>>);

impl Counted {
    fn new(counter: &Rc<Cell<usize>>) -> Counted {
        counter.set(counter.get() + 1);
        Counted(Rc::clone(counter))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// A connection that a request has taken.
pub(crate) struct Lease {
    pub wire: Wire,
    /// Whether it was open before.
    pub is_used: bool,
    _counted: Counted,
}

/// One connection of HTTP/2, opened when it is first wanted.
#[derive(Default)]
struct Slot {
    /// Requests under way on it.
    active: Rc<Cell<usize>>,
    /// Requests that it was taken for.
    taken: Cell<u64>,
    sender: Mutex<Option<http2::SendRequest<Body>>>,
}

/// All connections.
pub(crate) struct Pool {
    protocol: Protocol,
    connections_max: usize,
    streams_max: usize,
    hosts: Vec<Host>,
    /// Connections of HTTP/1.1 that are open and without work, by host.
    idle: RefCell<Vec<Vec<Wire>>>,
    /// Requests that have a connection for themselves, or open one.
    busy: Rc<Cell<usize>>,
    /// With HTTP/2: the connections of each host. Empty if each request has one for itself.
    slots: Vec<Vec<Slot>>,
    opened: Cell<u64>,
}

impl Pool {
    /// Looks the names of all hosts up.
    pub async fn new(plan: &Plan) -> Result<Pool, Error> {
        let tls = plan.tls.as_ref().map(|config| {
            let mut config = ClientConfig::clone(config);
            config.alpn_protocols = vec![plan.protocol.alpn().to_vec()];
            Arc::new(config)
        });
        let mut hosts = Vec::new();
        for origin in &plan.targets.origins {
            hosts.push(Host::resolve(origin, tls.as_ref()).await?);
        }
        let n = hosts.len().max(1);
        let slots_of = |host: usize| plan.connections / n + usize::from(host < plan.connections % n);
        let slots: Vec<Vec<Slot>> = match plan.protocol {
            Protocol::Http2 if plan.keeps_alive => {
                (0..n).map(|host| (0..slots_of(host)).map(|_| Slot::default()).collect()).collect()
            }
            _ => Vec::new(),
        };
        Ok(Pool {
            protocol: plan.protocol,
            connections_max: plan.connections,
            streams_max: plan.streams,
            idle: RefCell::new(hosts.iter().map(|_| Vec::new()).collect()),
            hosts,
            busy: Rc::default(),
            slots,
            opened: Cell::new(0),
        })
    }

    /// How many requests may be under way at a time in each lane. A lane is a host if connections belong to hosts;
    /// otherwise there is one for all.
    pub fn lanes(&self) -> Vec<usize> {
        match self.slots.is_empty() {
            true => vec![self.connections_max],
            false => self.slots.iter().map(|slots| slots.len().saturating_mul(self.streams_max)).collect(),
        }
    }

    /// The lane of a host.
    pub fn lane(&self, origin: usize) -> usize {
        if self.slots.is_empty() { 0 } else { origin }
    }

    /// Connections that were opened.
    pub fn opened(&self) -> u64 {
        self.opened.get()
    }

    pub fn origin(&self, origin: usize) -> Result<&Origin, Failure> {
        Ok(&self.host(origin)?.origin)
    }

    fn host(&self, origin: usize) -> Result<&Host, Failure> {
        self.hosts.get(origin).ok_or_else(|| Failure::new("protocol", "no such host"))
    }

    /// A connection for a request. With HTTP/2 the one with the fewest requests under way; a lane has no more requests
    /// than its connections have streams, so that none has too many.
    pub async fn take(&self, origin: usize) -> Result<Lease, Failure> {
        let slots = self.slots.get(origin).map(Vec::as_slice).unwrap_or_default();
        if let Some(slot) = slots.iter().min_by_key(|slot| (slot.active.get(), slot.taken.get())) {
            let counted = Counted::new(&slot.active);
            slot.taken.set(slot.taken.get() + 1);
            let mut sender = slot.sender.lock().await;
            if let Some(open) = sender.as_ref().filter(|open| !open.is_closed()) {
                return Ok(Lease { wire: Wire::Http2(open.clone()), is_used: true, _counted: counted });
            }
            let wire = self.open(origin).await?;
            if let Wire::Http2(open) = &wire {
                *sender = Some(open.clone());
            }
            return Ok(Lease { wire, is_used: false, _counted: counted });
        }
        let counted = Counted::new(&self.busy);
        while let Some(mut wire) = self.idle_of(origin) {
            // The end of the answer before may not have been processed yet.
            if let Wire::Http1(sender) = &mut wire
                && sender.ready().await.is_ok()
            {
                return Ok(Lease { wire, is_used: true, _counted: counted });
            }
        }
        Ok(Lease { wire: self.open(origin).await?, is_used: false, _counted: counted })
    }

    /// A connection in place of one that the server has closed before it read the request.
    pub async fn take_again(&self, origin: usize) -> Result<Lease, Failure> {
        if self.slots.is_empty() {
            let counted = Counted::new(&self.busy);
            return Ok(Lease { wire: self.open(origin).await?, is_used: false, _counted: counted });
        }
        // Many requests were on it. The first of them replaces it for all.
        let lease = self.take(origin).await?;
        Ok(Lease { is_used: false, ..lease })
    }

    /// Keeps a connection of HTTP/1.1 for the next request.
    pub fn give_back(&self, origin: usize, lease: Lease) {
        if matches!(lease.wire, Wire::Http1(_))
            && !lease.wire.is_closed()
            && let Some(idle) = self.idle.borrow_mut().get_mut(origin)
        {
            idle.push(lease.wire);
        }
    }

    fn idle_of(&self, origin: usize) -> Option<Wire> {
        self.idle.borrow_mut().get_mut(origin).and_then(Vec::pop)
    }

    async fn open(&self, origin: usize) -> Result<Wire, Failure> {
        self.make_room();
        let wire = self.host(origin)?.connect(self.protocol).await?;
        self.opened.set(self.opened.get() + 1);
        Ok(wire)
    }

    /// Closes a connection that is idle, to another host, if there would be too many.
    fn make_room(&self) {
        let mut idle = self.idle.borrow_mut();
        let open = idle.iter().map(Vec::len).sum::<usize>() + self.busy.get();
        if open > self.connections_max
            && let Some(others) = idle.iter_mut().find(|others| !others.is_empty())
        {
            others.pop();
        }
    }
}
