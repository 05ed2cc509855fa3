"""The page's actions: the changes that an operator can make over HTTP.

An action is planned first and carried out then (plan.py). Both go by requests of Kafka's protocol
(asking.py), so that the page has the abilities of Kafka's own tools, and the same checks.
"""
