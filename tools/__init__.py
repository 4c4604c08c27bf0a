"""What development needs and the product does not contain."""
