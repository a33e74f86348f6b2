"""What Papi 2023 (section 5) asks of a model's attention, and what any policy could still gain."""
