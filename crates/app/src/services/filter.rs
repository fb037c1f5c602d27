//! Which services are meant by `NAME|PORT`.

use std::fmt;

use super::{Address, Endpoint, Service, Services};

/// A port, an address, or the name of a process, unit or socket.
#[derive(Debug, Clone)]
pub struct Filter {
    text: String,
    port: Option<u16>,
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}'", self.text)
    }
}

impl Filter {
    pub fn new(text: &str) -> Filter {
        let port = text.strip_prefix(':').unwrap_or(text).parse().ok();
        Filter { text: text.to_owned(), port }
    }

    pub fn is(&self, service: &Service) -> bool {
        if let Some(port) = self.port {
            return service.address.port() == Some(port);
        }
        let is_name = service.names.contains(&self.text) || service.unit() == Some(self.text.as_str());
        is_name || self.is_address(&service.key, &service.address)
    }

    /// Whether it is the address itself.
    pub fn is_address(&self, key: &str, address: &Address) -> bool {
        key == self.text || matches!(&address.endpoint, Endpoint::Unix(path) if *path == self.text)
    }

    /// The indices of the services that are meant.
    pub fn find(&self, services: &Services) -> Vec<usize> {
        (0..services.services.len()).filter(|i| self.is(&services.services[*i])).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    #[test]
    fn a_service_has_many_names() {
        let services = example::services();
        let find = |text: &str| -> Vec<String> {
            let found = Filter::new(text).find(&services);
            found.into_iter().map(|i| services.services[i].key.clone()).collect()
        };
        for text in ["8080", ":8080", "orders-api", "gunicorn", "127.0.0.1:8080"] {
            assert_eq!(find(text), ["127.0.0.1:8080"], "{text}");
        }
        for text in ["unix:/run/cache.sock", "/run/cache.sock"] {
            assert_eq!(find(text), ["unix:/run/cache.sock"], "{text}");
        }
        for text in ["808", "orders", "", "127.0.0.1"] {
            assert_eq!(find(text), [""; 0], "{text}");
        }
    }
}
