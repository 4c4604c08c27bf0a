"""A real Kubernetes for tests: kind on the machine's Docker engine, or on one made in namespaces of its own."""
