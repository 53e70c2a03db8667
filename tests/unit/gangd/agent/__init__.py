"""Tests of freezers, guardian, clock and agent."""
