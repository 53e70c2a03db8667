"""Measuring what applications lose to each other: programs, frozen between windows, and their speeds."""
